// SPDX-License-Identifier: Apache-2.0
// What a run minimises, by the name its config gives.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>

#include "core/config/config.h"
#include "core/tensor.h"

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
  /// The same loss where outputs are linear(x, w, b), without them; how many labels have the largest output is added to
  /// `correct`, one i64, unless absent. Empty for losses that need the outputs.
  std::function<Tensor(const Tensor& x, const Tensor& w, const Tensor& b, const Tensor& labels, const Tensor& correct)>
      of_head;
};

using LossRegistry = Registry<Loss()>;
/// Known here: cross_entropy {label_smoothing, ignore_index}, mse (against one-hot labels).
HEARTH_API LossRegistry& losses();

}  // namespace hearth::train
