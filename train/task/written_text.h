// SPDX-License-Identifier: Apache-2.0
// Sequences that a model writes.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "data/text/token_set.h"
#include "models/text/beam_search.h"
#include "models/text/generate.h"

namespace hearth::train {

class TrainedModel;

struct Continuation {
  std::string text;  ///< without the prompt; UTF-8
  std::int64_t tokens = 0;
  bool ended = false;  ///< otherwise it has the most ids
};

/// Continues prompts, each of one id or more, with a model of the token stream `set`. `options.limits` but for `most`
/// come from its tokenizer. The model is in evaluation mode.
HEARTH_API std::vector<Continuation> write_continuations(const TrainedModel& trained, const data::TokenDataset& set,
                                                         const std::vector<std::vector<std::int32_t>>& prompts,
                                                         models::GenerateOptions options);

struct Translation {
  std::string text;  ///< UTF-8
  double score = 0;  ///< as models::Found has it
  bool ended = false;
};

/// Translates sources, ids with an end, with a model of the pairs `set`. `options.limits` but for `most` come from its
/// tokenizer. Searches for those of about equal length together. A source of the end alone gives an empty text. The
/// model is in evaluation mode.
HEARTH_API std::vector<Translation> write_translations(const TrainedModel& trained, const data::PairDataset& set,
                                                       const std::vector<std::vector<std::int32_t>>& sources,
                                                       models::BeamOptions options);

/// What sequences that a model writes for a split are compared by.
struct TextMetricOptions {
  models::BeamOptions search{};  ///< limits.most is 0: as many ids as a row of the split has
  std::int64_t limit = 0;        ///< the first so many pairs; 0: all
  bool by_edits = false;         ///< error rates in place of BLEU
};

/// Text whose bytes are UTF-8: others, as half a character at the end of a text of bytes, become U+FFFD.
HEARTH_API std::string repaired_text(std::string_view text);

}  // namespace hearth::train
