// SPDX-License-Identifier: Apache-2.0
// What a trained model says of samples.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/export.h"
#include "core/tensor.h"

namespace hearth {

/// What a model says of a batch, on the CPU, a row for each input.
struct Prediction {
  Tensor logits;  ///< f32 [n, classes]: the model's outputs; [n, H, W, classes] for masks, [n, targets] for numbers
  Tensor probabilities;  ///< their softmax; undefined where the outputs are numbers, or labels that occur together
  Tensor embedding;      ///< f32 [n, C]: what the model's last layer sees; undefined unless asked for
};

/// A class and its probability for a sample.
struct ScoredClass {
  std::int64_t label;
  std::string name;
  double probability;
};

/// The `count` most probable classes of a row, the most probable first; `names` by label. IndexError for a row that is
/// not there, or probabilities that are not [n, names]; UsageError for a count below 1.
HEARTH_API std::vector<ScoredClass> top_classes(const Prediction& prediction, const std::vector<std::string>& names,
                                                std::int64_t row, std::int64_t count);

}  // namespace hearth
