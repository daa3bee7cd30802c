// SPDX-License-Identifier: Apache-2.0
// Sequences as ids: in memory, or in a token file that is read as they are asked for. A token file is little-endian:
//   0 "HRTHTOK2" | 8 u32 bytes an id (2 or 4) | 12 u32 CRC-32C of these 128 bytes with 0 here | 16 u64 ids |
//   24 u64 sequences | 32 u64 characters | 40 u64 vocabulary | 48 u32 CRC-32C of the checksums at the end | 52 u32 0 |
//   56 64 hexadecimal digits of the tokenizer's digest | 120 u64 0 | ids, zeros up to a multiple of 8 |
//   u64 for each sequence: ids up to its end | u32 CRC-32C for each 256 KiB from 128 on up to here
// In a file of an earlier version, "HRTHTOK1", no checksums are at the end, and 48 is the CRC-32C of all from 128 on.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "core/io/file.h"
#include "data/text/tokenizers/tokenizer.h"

namespace hearth::data {

class CheckedBlocks;

class HEARTH_API Tokens {
 public:
  /// What ids mean, and how much text they are.
  struct Meaning {
    std::int64_t vocabulary = 0;
    std::int64_t characters = 0;
    std::string digest;  ///< of the tokenizer
  };

  /// Sequences in memory: ends[i] is the number of ids up to the end of sequence i. `source` is for messages.
  Tokens(std::vector<std::int32_t> ids, std::vector<std::uint64_t> ends, Meaning meaning, std::string source);
  ~Tokens();
  /// Opens a token file. FileError if it cannot be; DataError, naming the file, if it is none, is cut short or has a
  /// damaged header. The ids themselves are compared with their checksums when copy() first reads them, and by
  /// verify(); a file of an earlier version, which has one checksum for all, is read whole here.
  static std::shared_ptr<const Tokens> open(const std::string& path);
  /// DataError, naming the file, if a checksum is wrong or an id lies outside the vocabulary.
  void verify() const;

  std::int64_t size() const { return size_; }
  std::int64_t sequences() const { return static_cast<std::int64_t>(ends_.size()); }
  /// The place of a sequence's first id, and the one behind its last.
  std::int64_t begin(std::int64_t sequence) const { return sequence == 0 ? 0 : end(sequence - 1); }
  std::int64_t end(std::int64_t sequence) const {
    return static_cast<std::int64_t>(ends_[static_cast<std::size_t>(sequence)]);
  }
  std::int64_t length(std::int64_t sequence) const { return end(sequence) - begin(sequence); }
  /// Writes ids first..first + count - 1. IndexError outside the tokens; DataError, naming the file and place, for
  /// damaged ids and for one outside the vocabulary; FileError, naming file and offset, if they cannot be read. Called
  /// by several threads at once.
  void copy(std::int64_t first, std::int64_t count, std::int32_t* target) const;
  const Meaning& meaning() const { return meaning_; }
  const std::string& source() const { return source_; }
  /// Bytes an id has in a file.
  int width() const { return width_for(meaning_.vocabulary); }
  static int width_for(std::int64_t vocabulary) { return vocabulary <= 65536 ? 2 : 4; }

  static constexpr std::size_t header_bytes = 128;
  /// The header of a file; `checksum` is that of the checksums at its end.
  static std::vector<std::byte> header_of(const Meaning& meaning, std::uint64_t ids, std::uint64_t sequences,
                                          std::uint32_t checksum);

 private:
  Tokens() = default;
  void check_ends() const;
  void open_file(const std::string& path);
  /// f(first, ids) for stretches of the ids, in order.
  template <class F>
  void for_each_piece(F&& f) const;

  std::int64_t size_ = 0;
  Meaning meaning_;
  std::string source_;
  std::vector<std::int32_t> ids_;          // in memory
  std::unique_ptr<CheckedBlocks> blocks_;  // or in a file
  std::vector<std::uint64_t> ends_;
};

using TokensPointer = std::shared_ptr<const Tokens>;

/// Most bytes of a text, plain or inflated: it is held in memory.
inline constexpr ReadLimit corpus_limit{std::uint64_t{8} << 30, "sequences"};

/// The text of a file, plain or gzip, as training takes it: without byte order mark, lines ending in \n. FileError;
/// DataError, naming the file and line, for what is not UTF-8, and for an empty file or zero bytes.
HEARTH_API std::string read_corpus(const std::string& path);
/// The same of a text that was read already; `source` is for messages.
HEARTH_API std::string checked_corpus(std::string text, const std::string& source);
/// Its lines, without their ends; views of the text.
HEARTH_API std::vector<std::string_view> lines_of(std::string_view text);

}  // namespace hearth::data
