// SPDX-License-Identifier: Apache-2.0
// What the configuration of the datasets "text", "parallel_text" and "labelled_text" may say.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/config/config.h"
#include "data/dataset.h"
#include "data/options.h"
#include "data/text/tokenizers/tokenizer_registry.h"

namespace hearth::data {

/// Where sequences come from, for both kinds of sets.
struct TextFiles {
  std::vector<std::string> train;
  std::vector<std::string> valid;
  std::vector<std::string> test;
  std::string packed;
};

/// What ends with the tokenizer's end id.
enum class Documents : std::uint8_t {
  files,
  lines,       ///< those that are not empty
  paragraphs,  ///< lines between empty ones
};

struct TextData : DataOptions, TextFiles {
  std::int64_t length = 256;
  Documents documents = Documents::files;
  bool packing = false;
  double mask_probability = 0;
  Tokenizers::Component tokenizer;
};

struct ParallelTextData : DataOptions, TextFiles {
  std::int64_t tokens_per_batch = 0;
  std::vector<std::int64_t> buckets;
  std::int64_t multiple = 8;
  std::int64_t longest = 256;
  OnFault on_long = OnFault::fail;  ///< of lines of more ids than may be
  std::optional<double> max_ratio = std::nullopt;
  Tokenizers::Component tokenizer;
  Tokenizers::Component source_tokenizer;
};

struct LabelledTextData : DataOptions {
  LabelledTextData() = default;  // as an aggregate gcc 12 takes its members for uninitialised
  std::vector<std::string> train;
  std::vector<std::string> valid;
  std::vector<std::string> test;
  std::vector<std::string> classes;
  std::int64_t length = 256;
  std::int64_t tokens_per_batch = 0;
  Tokenizers::Component tokenizer;
};

HEARTH_API void describe(Fields<TextData>& fields);
HEARTH_API void describe(Fields<ParallelTextData>& fields);
HEARTH_API void describe(Fields<LabelledTextData>& fields);

}  // namespace hearth::data
