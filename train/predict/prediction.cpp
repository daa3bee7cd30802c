// SPDX-License-Identifier: Apache-2.0
#include "train/predict/prediction.h"

#include <algorithm>
#include <numeric>

namespace hearth {

std::vector<ScoredClass> top_classes(const Prediction& prediction, const std::vector<std::string>& names,
                                     std::int64_t row, std::int64_t count) {
  const Tensor& rows = prediction.probabilities;
  const auto known = static_cast<std::int64_t>(names.size());
  HEARTH_CHECK(IndexError, rows.defined() && rows.rank() == 2 && row >= 0 && row < rows.dim(0) && rows.dim(1) == known,
               "top: row ", row, " of ", describe(rows), ", which is to be [n, ", known, "]");
  HEARTH_CHECK(UsageError, count >= 1, "top: ", count, " classes; give 1 or more");
  const float* const probabilities = rows.data<const float>() + row * known;
  std::vector<std::int64_t> labels(static_cast<std::size_t>(known));
  std::iota(labels.begin(), labels.end(), std::int64_t{0});
  std::stable_sort(labels.begin(), labels.end(),
                   [&](std::int64_t a, std::int64_t b) { return probabilities[a] > probabilities[b]; });
  std::vector<ScoredClass> result;
  for (std::int64_t i = 0; i < std::min(count, known); ++i) {
    const std::int64_t label = labels[static_cast<std::size_t>(i)];
    result.push_back({label, names[static_cast<std::size_t>(label)], probabilities[label]});
  }
  return result;
}

}  // namespace hearth
