// SPDX-License-Identifier: Apache-2.0
// Small pieces of a large file, read in rising order of their offsets: several come with one read.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "data/source/source.h"

namespace hearth::data {

class FileWindow {
 public:
  explicit FileWindow(const SourceFile& file) : file_(file) {}

  /// The bytes from `offset` on, which lie within the file; valid up to the next call. FileError if they cannot be
  /// read.
  std::span<const std::byte> at(std::uint64_t offset, std::size_t count) {
    if (offset < begin_ || offset + count > begin_ + bytes_.size()) {
      // A header, what is small behind it, and the header that follows.
      constexpr std::size_t usual = 4096;
      bytes_.resize(std::max<std::size_t>(count, std::min<std::uint64_t>(usual, file_.size() - offset)));
      begin_ = offset;
      file_.read(offset, bytes_);
    }
    return std::span(bytes_).subspan(offset - begin_, count);
  }

 private:
  const SourceFile& file_;
  std::uint64_t begin_ = 0;
  std::vector<std::byte> bytes_;
};

}  // namespace hearth::data
