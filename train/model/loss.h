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

/// What labels a loss is for.
enum class LabelKind : std::uint8_t {
  any,
  classes,  ///< numbers of classes, or distributions over them
};

/// The loss of a batch: outputs [N, C] and labels [N] (i64), label distributions or targets [N, C] (f32); a scalar, the
/// mean over the samples that count.
struct Loss : std::function<Tensor(const Tensor& outputs, const Tensor& labels)> {
  using function::function;
  /// Samples with this label do not count; without a value all do. Batches of one step are weighed accordingly. In a
  /// run it is data::ignored_label, which its loaders put in the place of another one.
  std::optional<std::int64_t> ignored_label;
  LabelKind labels = LabelKind::any;
  std::int64_t class_weights = 0;  ///< how many classes have weights; 0: it is of any number of classes
  /// What the loss of these labels counts for beside that of others, f64 [1] on their device: the sum of the weights of
  /// their classes. Empty: as many as count.
  std::function<Tensor(const Tensor& labels)> weight;
  /// The loss is the mean of -log of the probability that the outputs give to the labels, so that e^loss is a
  /// perplexity.
  bool is_likelihood = false;
  /// The model has its loss, as detectors do: this is none.
  bool is_of_model = false;
  /// The same loss where outputs are linear(x, w, b), without them; how many labels have the largest output is added to
  /// `correct`, one i64, unless absent. Empty for losses that need the outputs.
  std::function<Tensor(const Tensor& x, const Tensor& w, const Tensor& b, const Tensor& labels, const Tensor& correct)>
      of_head;
  /// Called once before the first batch, with the device of the run and the number of classes (0: there are none):
  /// brings there what the loss needs besides the batch. Empty for losses that need nothing.
  std::function<void(Device device, std::int64_t classes)> place;
};

/// x in f32, or in f64 where it has that type: what losses are computed in.
HEARTH_API Tensor upcast(const Tensor& x);

using LossRegistry = Registry<Loss()>;
/// Known here: model, of models that have their loss; cross_entropy {label_smoothing, ignore_index, class_weights},
/// focal {gamma, ...}, and of targets with an axis for outputs, or one-hot labels: mse, l1, huber {delta},
/// bce_with_logits {positive_weight}.
HEARTH_API LossRegistry& losses();

}  // namespace hearth::train
