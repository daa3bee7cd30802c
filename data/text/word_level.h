// SPDX-License-Identifier: Apache-2.0
// Vocabularies of whole characters and of whole words.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "hearth/data/text/tokenizer.h"
#include "hearth/data/text/vocabulary.h"

namespace hearth::data {

/// A vocabulary for what a text is cut into, in order of frequency (of equals by their bytes), behind the special
/// tokens: at most `most` pieces in all (0: no limit), each seen `min_count` times.
struct CountLimits {
  std::int64_t most = 0;
  std::int64_t min_count = 1;
};

/// Every character is a piece.
class CharacterTokenizer : public Tokenizer {
 public:
  CharacterTokenizer(Vocabulary vocabulary, std::vector<AddedToken> added);
  /// From the characters of texts.
  static TokenizerPointer train(Texts texts, CountLimits limits);

  std::int64_t size() const override { return vocabulary_.size(); }
  const SpecialIds& special() const override { return special_; }
  std::vector<std::int32_t> encode(std::string_view text) const override;
  std::string decode(std::span<const std::int32_t> ids) const override;
  const std::string& piece(std::int32_t id) const override { return vocabulary_.piece(id); }
  std::optional<std::int32_t> id_of(std::string_view piece) const override { return vocabulary_.find(piece); }
  Json to_json() const override;

 private:
  Vocabulary vocabulary_;
  AddedTokens added_;
  SpecialIds special_;
};

struct WordOptions {
  bool lower_case = false;
  bool punctuation = false;  ///< every punctuation character is a word of its own
};

/// Words between white space; decode() puts one blank between them.
class WordTokenizer : public Tokenizer {
 public:
  WordTokenizer(Vocabulary vocabulary, std::vector<AddedToken> added, WordOptions options);
  /// From the words of texts.
  static TokenizerPointer train(Texts texts, CountLimits limits, WordOptions options);

  std::int64_t size() const override { return vocabulary_.size(); }
  const SpecialIds& special() const override { return special_; }
  std::vector<std::int32_t> encode(std::string_view text) const override;
  std::string decode(std::span<const std::int32_t> ids) const override;
  const std::string& piece(std::int32_t id) const override { return vocabulary_.piece(id); }
  std::optional<std::int32_t> id_of(std::string_view piece) const override { return vocabulary_.find(piece); }
  Json to_json() const override;

 private:
  Vocabulary vocabulary_;
  AddedTokens added_;
  WordOptions options_;
  SpecialIds special_;
};

}  // namespace hearth::data
