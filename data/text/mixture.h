// SPDX-License-Identifier: Apache-2.0
// Several datasets of token streams as one, each with a weight:
//   "data": {"type": "mixture", "sources": [{"type": "text", ...}, {"type": "text", ...}], "weights": [0.7, 0.3]}
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "data/registry.h"
#include "data/text/token_set.h"

namespace hearth::data {

struct MixtureData : DataOptions {
  std::vector<Datasets::Component> sources;
  std::vector<double> weights;
};

HEARTH_API void describe(Fields<MixtureData>& fields);

/// The splits of the sources, mixed. ConfigError where there are not as many weights as sources, or a source is no
/// token stream; DataError, naming both, where two sources have different tokenizers or rows; else as the sources.
HEARTH_API Splits mixture_data(const MixtureData& options);

/// Rows of an epoch that come from each source: the shares of `rows` by the weights, to the nearest whole numbers that
/// add up (largest remainder, the first of equal ones).
HEARTH_API std::vector<std::int64_t> rows_by_weight(const std::vector<double>& weights, std::int64_t rows);

/// The sets as one. A shuffled epoch has as many rows as those of all sets together, of each set as many as its weight
/// says: rows of a set that run out begin anew in another order, what is left over comes in the next epoch. In order
/// every row of every set is there once, whatever the weights.
HEARTH_API std::shared_ptr<const TokenDataset> mixture(std::vector<std::shared_ptr<const TokenDataset>> sets,
                                                       std::vector<double> weights);

}  // namespace hearth::data
