// SPDX-License-Identifier: Apache-2.0
// WordPiece as BERT uses it: a text is cleaned, perhaps lower-cased and freed of accents, cut at white space,
// punctuation and CJK ideographs; each word is then covered by the longest pieces from left to right.
// Source: Devlin et al., "BERT: Pre-training of Deep Bidirectional Transformers" (2019).
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "data/text/tokenizers/vocabulary_tokenizer.h"

namespace hearth::data {

struct WordPieceOptions {
  bool clean_text = true;               ///< control characters are dropped, white space becomes blanks
  bool handle_chinese_chars = true;     ///< every CJK ideograph is a word
  std::optional<bool> strip_accents{};  ///< as lower_case where it is not given
  bool lower_case = true;
  std::string prefix = "##";  ///< of pieces that do not begin a word
  std::string unknown = "[UNK]";
  std::int64_t longest_word = 100;  ///< in characters; longer words are unknown
};

class WordPieceTokenizer : public VocabularyTokenizer {
 public:
  /// DataError, naming `source`, if the vocabulary lacks the unknown piece.
  WordPieceTokenizer(Vocabulary vocabulary, std::vector<AddedToken> added, WordPieceOptions options,
                     const std::string& source);

  std::vector<std::int32_t> encode(std::string_view text) const override;
  /// Words with blanks between them, but before common signs; what cleaning took away does not come back.
  std::string decode(std::span<const std::int32_t> ids) const override;
  Json to_json() const override;

  /// The text as words are cut from it.
  std::string normalized(std::string_view text) const;

 private:
  void encode_word(std::string_view word, std::vector<std::int32_t>& ids) const;

  std::int64_t model_size_;  // pieces that are not only added tokens
  WordPieceOptions options_;
};

}  // namespace hearth::data
