// SPDX-License-Identifier: Apache-2.0
// Special tokens and the parts of a tokenizer.json that all tokenizers share.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "data/text/tokenizers/tokenizer.h"
#include "data/text/tokenizers/vocabulary.h"

namespace hearth::data {

/// The first pieces of every vocabulary made here: <pad> <unk> <s> </s> <mask>.
const std::vector<std::string>& own_special_tokens();
/// The same with their ids, 0 to 4.
std::vector<AddedToken> own_added_tokens();

/// Special ids by the names that vocabularies use: [PAD] or <pad>, [UNK] or <unk>, [CLS] or <s>, [SEP] or </s>, [MASK]
/// or <mask>; <|endoftext|> serves as begin and end. `unknown`, if not empty, names that one.
SpecialIds find_special(const Vocabulary& vocabulary, std::string_view unknown);

/// Gives added tokens that the vocabulary lacks their ids. DataError, naming `source`, unless these follow the
/// vocabulary's, or if one has another id there.
void add_tokens(Vocabulary& vocabulary, const std::vector<AddedToken>& added, const std::string& source);

/// A tokenizer.json of its parts; those that are null stay null.
Json tokenizer_document(const AddedTokens& added, Json normalizer, Json pre_tokenizer, Json decoder, Json model);

}  // namespace hearth::data
