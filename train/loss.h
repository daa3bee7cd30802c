// SPDX-License-Identifier: Apache-2.0
// What a run minimises, by the name its config gives.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>

#include "hearth/core/config.h"
#include "hearth/core/tensor.h"

namespace hearth::train {

/// The loss of a batch: outputs [N, C] and labels [N] (i64) or label distributions [N, C] (f32); a scalar, the mean
/// over the samples that count.
struct Loss : std::function<Tensor(const Tensor& outputs, const Tensor& labels)> {
  using function::function;
  /// Samples with this label do not count; without a value all do. Batches of one step are weighed accordingly.
  std::optional<std::int64_t> ignored_label;
  /// The loss is the mean of -log of the probability that the outputs give to the labels, so that e^loss is a
  /// perplexity.
  bool is_likelihood = false;
};

using LossRegistry = Registry<Loss()>;
/// Known here: cross_entropy {label_smoothing, ignore_index}, mse (against one-hot labels).
LossRegistry& losses();

}  // namespace hearth::train
