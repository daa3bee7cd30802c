// SPDX-License-Identifier: Apache-2.0
// Which pairs a run takes: the same when text is read and when it is packed.
#pragma once

#include <cstdint>
#include <vector>

#include "data/dataset.h"
#include "data/text/token_set.h"
#include "data/text/tokens.h"

namespace hearth::data {

struct PairsWithin {
  std::vector<std::int64_t> pairs{};
  Warnings left_out{};
};

/// Those of `pairs`, numbers of sequences of both sides, that are within the limits of the options. A pair that is too
/// long is a DataError with its line, unless `skip_long`. DataError for sides of unequal numbers of sequences, for a
/// side without ids, and where no pair is left; IndexError for a number that there is not.
PairsWithin pairs_within(const Tokens& source, const Tokens& target, const std::vector<std::int64_t>& pairs,
                         const PairOptions& options, bool skip_long);

}  // namespace hearth::data
