// SPDX-License-Identifier: Apache-2.0
// Texts written by the network of a run.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "hearth/data/text/tokenizer.h"
#include "hearth/models/text/generate.h"
#include "hearth/train/session.h"

namespace hearth::train {

/// At most `most` ids of a tokenizer, none of them special; its end ends a text.
models::WritingLimits writing_limits(const data::Tokenizer& tokenizer, std::int64_t most);

struct Continuation {
  std::string text;  ///< without the prompt; UTF-8
  std::int64_t tokens = 0;
  bool ended = false;  ///< otherwise it has the most ids
};

/// Writes prompts on with a run on a running text; `options.limits` but for `most` come from its tokenizer. An empty
/// prompt stands for the beginning of a text. UsageError for a run on something else, or on masked texts; DataError,
/// naming the prompt, for one that is not UTF-8 or has what the vocabulary lacks.
std::vector<Continuation> continue_texts(Session& session, const std::vector<std::string>& prompts,
                                         models::GenerateOptions options);

}  // namespace hearth::train
