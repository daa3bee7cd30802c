// SPDX-License-Identifier: Apache-2.0
// Losses made of other ops.
#pragma once

#include <cstdint>
#include <vector>

#include "core/tensor.h"

namespace hearth::train::composed {

/// The labels as `outputs` has its axes, of its type: i64 [N] of classes become one-hot rows [N, C]; others are
/// converted, and reshaped where they have as many elements. ShapeError where they have not, IndexError for labels that
/// are no class.
Tensor labels_like(const Tensor& outputs, const Tensor& labels, const char* op);

// Outputs and targets of one shape and floating type; a scalar, the mean over all elements.

/// Mean of |x - t|.
Tensor l1(const Tensor& x, const Tensor& targets);
/// Mean of d^2 / 2 where d = |x - t| is at most delta, and of delta * (d - delta / 2) elsewhere. Source: Huber, "Robust
/// estimation of a location parameter" (1964).
Tensor huber(const Tensor& x, const Tensor& targets, double delta);
/// Mean of -(p t log s + (1 - t) log(1 - s)), s = sigmoid(x), p = positive_weight.
Tensor bce_with_logits(const Tensor& x, const Tensor& targets, double positive_weight);

/// Cross entropy whose rows count by class, and by how far they are from right.
struct CrossEntropyByClassOptions {
  double label_smoothing = 0;
  std::int64_t ignore_index = -100;
  std::vector<double> class_weights{};  ///< one a class; empty: all 1
  double gamma = 0;  ///< rows count (1 - p)^gamma, p = exp(-their loss): focal loss (Lin et al. 2017, arXiv:1708.02002)
};
/// logits [..., C] and labels, i64 [...] or distributions [..., C]; a scalar: the sum of weight * loss over the rows
/// that are not ignored by the sum of their class weights, as in PyTorch where there is no label smoothing, whose terms
/// of the other classes PyTorch weighs by theirs; 0 if there is none. ShapeError unless there are as many class weights
/// as classes.
Tensor cross_entropy_by_class(const Tensor& logits, const Tensor& labels, const CrossEntropyByClassOptions& options);

}  // namespace hearth::train::composed
