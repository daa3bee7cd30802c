// SPDX-License-Identifier: Apache-2.0
// What the tokenizers that keep a list of pieces share.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "data/text/tokenizers/tokenizer.h"
#include "data/text/tokenizers/vocabulary.h"

namespace hearth::data {

/// Answers what the vocabulary alone knows; encode(), decode() and to_json() are the kinds'.
class VocabularyTokenizer : public Tokenizer {
 public:
  std::int64_t size() const override { return vocabulary_.size(); }
  const SpecialIds& special() const override { return special_; }
  const std::string& piece(std::int32_t id) const override { return vocabulary_.piece(id); }
  std::optional<std::int32_t> id_of(std::string_view piece) const override { return vocabulary_.find(piece); }

 protected:
  explicit VocabularyTokenizer(Vocabulary vocabulary) : vocabulary_(std::move(vocabulary)) {}

  Vocabulary vocabulary_;
  AddedTokens added_;
  SpecialIds special_;
};

}  // namespace hearth::data
