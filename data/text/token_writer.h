// SPDX-License-Identifier: Apache-2.0
// A token file (data/text/tokens.h) written as its ids are made, whatever its size.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "core/io/file.h"
#include "data/text/tokens.h"

namespace hearth::data {

class TokenWriter {
 public:
  /// Writes to `path` with ".part" behind it, which finish() renames. FileError.
  TokenWriter(std::string path, std::int64_t vocabulary, std::string digest);
  /// Removes what is not finished.
  ~TokenWriter();
  TokenWriter(const TokenWriter&) = delete;
  TokenWriter& operator=(const TokenWriter&) = delete;

  /// Ids behind those before. FileError.
  void append(std::span<const std::int32_t> ids);
  /// A sequence ends here.
  void end_sequence() { ends_.push_back(size_); }
  /// Characters of the text that ids were made of.
  void add_characters(std::int64_t count) { meaning_.characters += count; }
  /// Makes the file durable and gives it its name. FileError.
  void finish();

  const Tokens::Meaning& meaning() const { return meaning_; }
  std::int64_t size() const { return static_cast<std::int64_t>(size_); }
  std::int64_t sequences() const { return static_cast<std::int64_t>(ends_.size()); }
  int width() const { return Tokens::width_for(meaning_.vocabulary); }

 private:
  void put(std::span<const std::byte> bytes);
  void write_block();

  std::string path_;
  FileWriter file_;
  Tokens::Meaning meaning_;
  std::vector<std::byte> block_;  // what is not written yet of a block that has one checksum
  std::vector<std::uint32_t> checksums_;
  std::vector<std::uint64_t> ends_;
  std::uint64_t size_ = 0, bytes_ = 0;
  bool finished_ = false;
};

}  // namespace hearth::data
