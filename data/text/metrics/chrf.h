// SPDX-License-Identifier: Apache-2.0
// chrF of translations, as sacreBLEU computes it by default (chrF2): runs of 1 to 6 characters without white space,
// over the corpus, recall weighted twice. Source: Popović, "chrF: character n-gram F-score for automatic MT evaluation"
// (2015).
#pragma once

#include <span>
#include <string>

#include "core/export.h"

namespace hearth::data {

/// chrF, 0..100, of outputs against one reference each. DataError if the counts differ, or for text that is not UTF-8.
HEARTH_API double chrf(std::span<const std::string> outputs, std::span<const std::string> references);

}  // namespace hearth::data
