// SPDX-License-Identifier: Apache-2.0
// Vocabularies of whole characters and of whole words.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "data/text/tokenizers/vocabulary_tokenizer.h"

namespace hearth::data {

/// A vocabulary for what a text is cut into, in order of frequency (of equals by their bytes), behind the special
/// tokens: at most `most` pieces in all (0: no limit), each seen `min_count` times.
struct CountLimits {
  std::int64_t most = 0;
  std::int64_t min_count = 1;
};

/// Every character is a piece.
class CharacterTokenizer : public VocabularyTokenizer {
 public:
  /// `unknown` is the piece that stands for others, if the vocabulary has it.
  CharacterTokenizer(Vocabulary vocabulary, std::vector<AddedToken> added, std::string_view unknown);
  /// From the characters of sequences.
  static TokenizerPointer train(Corpus sequences, CountLimits limits);

  std::vector<std::int32_t> encode(std::string_view text) const override;
  std::string decode(std::span<const std::int32_t> ids) const override;
  Json to_json() const override;
};

struct WordOptions {
  bool lower_case = false;
  bool punctuation = false;  ///< every punctuation character is a word of its own
};

/// Words between white space; decode() puts one blank between them.
class WordTokenizer : public VocabularyTokenizer {
 public:
  /// `unknown` as above.
  WordTokenizer(Vocabulary vocabulary, std::vector<AddedToken> added, std::string_view unknown, WordOptions options);
  /// From the words of sequences.
  static TokenizerPointer train(Corpus sequences, CountLimits limits, WordOptions options);

  std::vector<std::int32_t> encode(std::string_view text) const override;
  std::string decode(std::span<const std::int32_t> ids) const override;
  Json to_json() const override;

 private:
  WordOptions options_;
};

}  // namespace hearth::data
