// SPDX-License-Identifier: Apache-2.0
// BLEU of translations, as sacreBLEU computes it by default: case counts, tokens by the rules called 13a, corpus level,
// exponential smoothing.
// Sources: Papineni et al., "BLEU: a Method for Automatic Evaluation of Machine Translation" (2002); Post, "A Call for
// Clarity in Reporting BLEU Scores" (2018); the tokens are those of NIST's mteval-v13a.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/export.h"

namespace hearth::data {

struct Bleu {
  double score = 0;                    ///< 0..100
  std::array<double, 4> precisions{};  ///< of 1 to 4 tokens, in percent
  double brevity_penalty = 1;
  std::int64_t output_tokens = 0;
  std::int64_t reference_tokens = 0;
};

/// The tokens of a line by the rules of 13a. DataError if it is not UTF-8.
HEARTH_API std::vector<std::string> tokens_13a(std::string_view line);

/// BLEU of outputs against one reference each. DataError if the counts differ.
HEARTH_API Bleu bleu(std::span<const std::string> outputs, std::span<const std::string> references);

}  // namespace hearth::data
