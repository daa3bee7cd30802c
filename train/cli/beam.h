// SPDX-License-Identifier: Apache-2.0
// The options of a beam search, as eval and predict take them.
#pragma once

#include "core/error.h"
#include "models/text/beam_search.h"
#include "train/cli/arguments.h"

namespace hearth::train {

/// Of --beam, --length-penalty and, for commands that have it, --max-tokens, which is 0 if not given: the longest row.
inline models::BeamOptions beam_options(const Arguments& arguments) {
  const models::BeamOptions usual;
  constexpr std::int64_t widest = 65536;
  const std::int64_t beam = arguments.whole("--beam", usual.beam, 1);
  HEARTH_CHECK(UsageError, beam <= widest, "--beam ", beam, "; it must be at most ", widest);
  return {.limits = {.most = arguments.whole("--max-tokens", 0, 1)},
          .beam = beam,
          .length_penalty = arguments.number("--length-penalty", usual.length_penalty)};
}

}  // namespace hearth::train
