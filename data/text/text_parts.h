// SPDX-License-Identifier: Apache-2.0
// What the datasets of text are made of before they are split: the ids of each part. Internal to data/text.
#pragma once

#include <array>
#include <string>
#include <string_view>
#include <vector>

#include "data/registry.h"
#include "data/text/text_options.h"
#include "data/text/token_set.h"
#include "data/text/tokenizers/tokenizer_registry.h"
#include "data/text/tokens.h"

namespace hearth::data::text_parts {

inline constexpr const char* part_names[] = {"train", "valid", "test"};

/// The ids of one part; `source` for pairs only. Null where there is no such part.
struct Part {
  TokensPointer source{};
  TokensPointer target{};
  Warnings left_out{};  ///< pairs that are not there because `hearth data pack` left them out
};

struct Parts {
  TokenizerPointer tokenizer{};
  TokenizerPointer source_tokenizer{};
  std::array<Part, 3> parts{};
};

/// The tokenizer that a configuration names, made from these sequences if it is made; null is characters.
TokenizerPointer make_tokenizer(const Tokenizers::Component& tokenizer, Corpus sequences);
/// read_corpus() of each.
std::vector<std::string> read_all(const std::vector<std::string>& paths);
/// Views of the documents of files.
std::vector<std::string_view> documents_of(const std::vector<std::string>& files, Documents documents);
/// The ids that the options name, tokenised or packed; `known` may have tokenizers already, which are taken then.
Parts parts_of(const TextData& options, Parts known = {});
Parts parts_of(const ParallelTextData& options, Parts known = {});

/// The file of a packed folder that has the pairs left out, by part: {"train": {"count": 2, "first": ["..."]}}.
inline constexpr const char* left_out_name = "left_out.json";
/// What a run takes of pairs.
PairOptions pair_options(const ParallelTextData& options);

/// Where the validation split begins that valid_fraction makes of the end of a token stream: an id, with `packing` the
/// first of a document. DataError if documents do not divide.
std::int64_t first_of_valid(const TextData& options, const Tokens& tokens);
/// The first document that begins at that id or behind it; their number where there is none.
std::int64_t document_at(const Tokens& tokens, std::int64_t place);

/// Numbers of sequences, in order.
struct HeldOutSequences {
  std::vector<std::int64_t> rest;
  std::vector<std::int64_t> held_out;
};
/// Sets valid_fraction of `size` sequences aside. DataError if one split would be empty.
HeldOutSequences hold_out_sequences(const DataOptions& options, std::int64_t size, const std::string& source);

/// ConfigError for a dataset of another type.
[[noreturn]] void refuse_type(const Datasets::Component& data, const std::vector<std::string>& known);

}  // namespace hearth::data::text_parts
