// SPDX-License-Identifier: Apache-2.0
// What the datasets of text are made of before they are split: the ids of each part. Internal to data/text.
#pragma once

#include <array>
#include <string>
#include <string_view>
#include <vector>

#include "data/text/text_data.h"
#include "data/text/tokenizer.h"
#include "data/text/tokens.h"

namespace hearth::data::text_parts {

inline constexpr const char* part_names[] = {"train", "valid", "test"};

/// The ids of one part; `source` for pairs only. Null where there is no such part.
struct Part {
  TokensPointer source{};
  TokensPointer target{};
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
/// ConfigError for a dataset of another type.
[[noreturn]] void refuse_type(const Datasets::Component& data, const std::vector<std::string>& known);

}  // namespace hearth::data::text_parts
