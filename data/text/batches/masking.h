// SPDX-License-Identifier: Apache-2.0
// Ids that are to be guessed from all others.
#pragma once

#include <cstdint>

#include "core/random.h"
#include "data/batch.h"
#include "data/text/tokenizers/tokenizer.h"

namespace hearth::data {

/// Each of `count` ids is one of those with `probability`: 80 % of them are replaced by the mask, 10 % by random ids,
/// 10 % stay (Devlin et al., 2019). Special ids are never among them: what fills a row up, and where a text begins and
/// ends. All other labels are ignored_label. Returns how many are to be guessed.
inline std::int64_t mask_ids(const Tokenizer& tokenizer, double probability, Random random, const std::int32_t* ids,
                             std::int64_t count, std::int32_t* input, std::int64_t* labels) {
  const SpecialIds& special = tokenizer.special();
  std::int64_t guessed = 0;
  for (std::int64_t i = 0; i < count; ++i) {
    input[i] = ids[i];
    labels[i] = ignored_label;
    if (random.uniform() >= probability || ids[i] == special.begin || ids[i] == special.end || ids[i] == special.pad)
      continue;
    labels[i] = ids[i];
    ++guessed;
    const double fate = random.uniform();
    if (fate < 0.8)
      input[i] = special.mask;
    else if (fate < 0.9)
      input[i] = static_cast<std::int32_t>(random.below(static_cast<std::uint64_t>(tokenizer.size())));
  }
  return guessed;
}

}  // namespace hearth::data
