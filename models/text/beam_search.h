// SPDX-License-Identifier: Apache-2.0
// The most probable sequences, searched for with several open ones at a time.
#pragma once

#include <cstdint>
#include <vector>

#include "models/text/decoder.h"
#include "models/text/generate.h"

namespace hearth::models {

struct BeamOptions {
  WritingLimits limits = {};
  std::int64_t beam = 4;  ///< open sequences of each search; 1: always the argmax
  /// a of the length penalty: sequences are compared by log P(text) / ((5 + n) / 6)^a, n the ids with the end; 0
  /// compares probabilities, more favours longer sequences. Source: Wu et al., "Google's Neural Machine Translation
  /// System" (2016), equation 14, without its coverage penalty.
  double length_penalty = 0.6;
};

struct Found {
  std::vector<std::int32_t> ids;  ///< without the prompt and the end
  double score = 0;               ///< log P over the length penalty
  bool ended = false;             ///< by the end id; false only where no open text ended within the most ids
};

/// For each prompt the best text that a beam search finds. The decoder has options.beam sequences for each, beside each
/// other, and none has ids yet; prompts are of one length, and those with an end and the prompt fill its room at most.
/// A search is over when `beam` sequences have ended, or no open one can become better than the best that has, however
/// it ends. Sequences end only where that is among the `beam` most probable next steps. UsageError as generate(), for a
/// beam below 1 and a negative or infinite penalty; DivergedError for logits that are not numbers.
HEARTH_API std::vector<Found> beam_search(TextDecoder& decoder, const std::vector<std::vector<std::int32_t>>& prompts,
                                          const BeamOptions& options);

}  // namespace hearth::models
