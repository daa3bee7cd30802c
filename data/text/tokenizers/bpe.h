// SPDX-License-Identifier: Apache-2.0
// Byte-level byte pair encoding, as of GPT-2: a text is cut by split_gpt2(), the bytes of each cut are joined pair by
// pair in the order in which the pairs were learned. Loses nothing, whatever the text.
// Source: Sennrich et al., "Neural Machine Translation of Rare Words with Subword Units" (2016); Radford et al. (2019).
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "data/text/tokenizers/vocabulary_tokenizer.h"

namespace hearth::data {

struct BpeOptions {
  bool add_prefix_space = false;  ///< a text that does not begin with a blank gets one
  bool ignore_merges = false;     ///< a cut that is a piece is taken whole, learned or not
  std::string unknown{};          ///< piece for bytes that the vocabulary lacks; empty: a text with one is refused
  bool fuse_unknown = false;      ///< of neighbours only one: refused where the vocabulary lacks bytes
};

/// What byte pair encoding learned.
struct BpeModel {
  std::vector<std::string> pieces;  ///< bytes written as printable characters
  /// Pairs of pieces in the order in which they are joined.
  std::vector<std::pair<std::string, std::string>> merges;
};

class BytePairTokenizer : public VocabularyTokenizer {
 public:
  using Merge = std::pair<std::string, std::string>;
  /// DataError, naming `source`, for a merge whose parts or result are no pieces, and for options of bytes that
  /// the vocabulary lacks.
  BytePairTokenizer(Vocabulary vocabulary, const std::vector<Merge>& merges, std::vector<AddedToken> added,
                    BpeOptions options, const std::string& source);

  std::vector<std::int32_t> encode(std::string_view text) const override;
  /// Bytes that are not UTF-8, as when ids end within a character, stay as they are.
  std::string decode(std::span<const std::int32_t> ids) const override;
  Json to_json() const override;

 private:
  struct Joined {
    std::int32_t rank;
    std::int32_t id;
  };
  void encode_part(std::string_view text, TextMap<std::vector<std::int32_t>>& known,
                   std::vector<std::int32_t>& ids) const;
  void encode_cut(std::string_view cut, std::vector<std::int32_t>& ids) const;
  void join(std::vector<std::int32_t>& ids, std::size_t first) const;
  const Joined* joined(std::int32_t left, std::int32_t right) const;

  std::size_t model_size_;  // pieces that are not only added tokens
  BpeOptions options_;
  std::array<std::int32_t, 256> byte_ids_{};
  bool lacks_bytes_ = false;
  std::vector<std::pair<std::int32_t, std::int32_t>> merges_;
  std::unordered_map<std::uint64_t, Joined> joins_;
  std::string source_;
};

/// Learns `vocabulary` pieces, `special` and the 256 bytes among them, from sequences: again and again the most
/// frequent pair is joined (of equals the one with the smaller ids), until the vocabulary is full or no pair occurs
/// `min_count` times. Gives what HuggingFace's BpeTrainer gives. ConfigError if not even bytes and special tokens fit.
BpeModel train_bpe(Corpus sequences, std::int64_t vocabulary, std::int64_t min_count,
                   const std::vector<std::string>& special);

}  // namespace hearth::data
