// SPDX-License-Identifier: Apache-2.0
// A part of a file that is too large to be checked before it is used: its blocks are, when each is first read.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "data/source/source.h"

namespace hearth::data {

class CheckedBlocks {
 public:
  /// The last block may be shorter.
  static constexpr std::uint64_t block_bytes = std::uint64_t{1} << 18;
  static constexpr std::uint64_t count_of(std::uint64_t bytes) { return (bytes + block_bytes - 1) / block_bytes; }
  /// The CRC-32C of each block.
  static std::vector<std::uint32_t> checksums_of(std::span<const std::byte> bytes);

  /// The `bytes` of the file from `offset` on, with a checksum for each block.
  CheckedBlocks(SourceFilePointer file, std::uint64_t offset, std::uint64_t bytes,
                std::vector<std::uint32_t> checksums);

  /// Fills `target` with the bytes from `at` on. DataError, naming file and offset, for a block that does not fit its
  /// checksum; FileError if it cannot be read. Called by several threads at once.
  void read(std::uint64_t at, std::span<std::byte> target) const;
  /// Compares every block, those that were read before too. Errors as of read().
  void verify() const;

 private:
  std::uint64_t size_of_block(std::uint64_t block) const;
  void read_checked(std::uint64_t block, std::vector<std::byte>& content) const;

  SourceFilePointer file_;
  std::uint64_t offset_;
  std::uint64_t bytes_;
  std::vector<std::uint32_t> checksums_;
  /// Of each block whether it was found whole. Two threads may find that out at once, which does no harm.
  mutable std::vector<std::atomic<bool>> is_checked_;
};

}  // namespace hearth::data
