// SPDX-License-Identifier: Apache-2.0
// The names and layouts of GPT-2, BERT, RoBERTa and DistilBERT in HuggingFace's transformers, beside Hearth's.
#pragma once

#include <string_view>

#include "models/weights/weights.h"

namespace hearth::models {

inline bool is_of_transformers(WeightFormat format) {
  return format == WeightFormat::hf_gpt2 || format == WeightFormat::hf_bert || format == WeightFormat::hf_roberta ||
         format == WeightFormat::hf_distilbert;
}

/// What names may begin with in a format of transformers, "bert."; "" for others.
std::string_view prefix_of(WeightFormat format);

/// to_hearth() and from_hearth() for these formats.
WeightSet transformers_to_hearth(const WeightSet& theirs, WeightFormat from, NameReport& report);
WeightSet transformers_from_hearth(const WeightSet& ours, WeightFormat to, NameReport& report);

}  // namespace hearth::models
