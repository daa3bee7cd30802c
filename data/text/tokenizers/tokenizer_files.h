// SPDX-License-Identifier: Apache-2.0
// Files of tokenizers.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "core/io/json_text.h"
#include "data/text/tokenizers/tokenizer.h"

namespace hearth::data {

/// Most bytes of a tokenizer's file.
inline constexpr ReadLimit tokenizer_limit{std::uint64_t{64} << 20, "tokenizers"};

/// Reads a tokenizer by its file: tokenizer.json (as HuggingFace's tokenizers write it, or Tokenizer::to_json),
/// vocab.txt (WordPiece), vocab.json with merges.txt beside it (byte-level BPE), or a SentencePiece .model; or the
/// folder that holds one of them (a model as tokenizer.model). FileError or DataError, naming the file and what in it
/// is not supported. `lower_case` is for a vocab.txt.
HEARTH_API TokenizerPointer read_tokenizer(const std::string& path, std::optional<bool> lower_case = {});
/// WordPiece from a list of pieces, one a line, as BERT's vocab.txt. What that does not tell is as a
/// tokenizer_config.json beside it says ("do_lower_case", "strip_accents", "tokenize_chinese_chars"), or as BERT's
/// tokenizer has it: small letters without accents. `lower_case` overrules the first.
HEARTH_API TokenizerPointer read_vocab_txt(const std::string& path, std::optional<bool> lower_case = {});
/// From the text of a tokenizer.json; `name` is for messages.
HEARTH_API TokenizerPointer parse_tokenizer(const Json& document, const std::string& name);
/// Writes tokenizer.json.
HEARTH_API void write_tokenizer(const Tokenizer& tokenizer, const std::string& path);

}  // namespace hearth::data
