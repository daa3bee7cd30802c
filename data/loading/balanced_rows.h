// SPDX-License-Identifier: Apache-2.0
// The rows of a batch shared out by length.
#pragma once

#include <cstdint>
#include <vector>

#include "data/loading/batch_maker.h"

namespace hearth::data {

/// The rows of `samples` that are piece `which` of `cuts`, in their order: the longest row first, each goes to the
/// piece that has the fewest tokens and lacks rows.
std::vector<std::int64_t> balanced_rows(const BatchMaker& maker, const std::vector<std::int64_t>& samples,
                                        std::int64_t cuts, std::int64_t which);

}  // namespace hearth::data
