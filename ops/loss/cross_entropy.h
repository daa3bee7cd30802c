// SPDX-License-Identifier: Apache-2.0
// Cross entropy of a softmax with labels or label distributions.
#pragma once

#include <cstdint>

#include "core/cpu/stream.h"
#include "core/cuda/stream.h"
#include "core/tensor.h"

namespace hearth {

/// How the losses of the rows become the result.
enum class Reduction : std::uint8_t {
  mean,  ///< over the rows that are not ignored; 0, with gradient 0, if all are
  sum,
  none,  ///< one loss a row; 0 for ignored ones
};

struct CrossEntropyOptions {
  /// In [0, 1]: the share of every target that is spread evenly over all classes.
  double label_smoothing = 0.0;
  /// Rows with this label count neither in the loss nor in the mean. Integer labels only.
  std::int64_t ignore_index = -100;
  Reduction reduction = Reduction::mean;
  /// f32 or f64 [C], on the device of the logits: what the loss of each class is multiplied by; absent: 1. The mean is
  /// then by the sum of the labels' weights, of floating labels by the number of rows.
  Tensor class_weights{};
};

/// -sum over classes of target * log softmax(logits), reduced over the rows.
///
/// logits [..., C], any floating type, read as they are. labels: i32 or i64 [...], classes in [0, C) or ignore_index;
/// or floating [..., C], the target of every class (mixed labels). The result is f32, f64 for f64 logits: a scalar, or
/// [...] for Reduction::none. Sums in f32 or wider. Labels and weights get no gradient.
/// IndexError for a label outside the classes, naming it and its position (on a CUDA device when the host next waits
/// for it; loss and gradient of its row are 0); ShapeError, DTypeError, UsageError for arguments that do not fit.
HEARTH_API Tensor cross_entropy(const Tensor& logits, const Tensor& labels, const CrossEntropyOptions& options = {});

/// What each row counts for in the mean of cross_entropy: the weight of its class (1 if weights are absent), 0 for
/// ignored rows. labels i32 or i64 [...], weights [C]; the result has the shape of the labels and type `dtype`.
HEARTH_API Tensor row_weights(const Tensor& labels, const Tensor& class_weights, DType dtype,
                              std::int64_t ignore_index = -100);

/// How many rows have their label among the k largest logits, an i64 scalar on their device; of equal logits the first
/// counts as larger. logits [..., C] floating, labels i32 or i64 [...]; rows labelled ignore_index are not counted.
/// 1 <= k <= C. Not differentiable. Errors as for cross_entropy.
HEARTH_API Tensor count_correct(const Tensor& logits, const Tensor& labels, std::int64_t k = 1,
                                std::int64_t ignore_index = -100);

namespace kernels {

/// Of the losses of inputs of a type: f32, or f64 for f64.
inline DType loss_type(DType inputs) { return inputs == DType::f64 ? DType::f64 : DType::f32; }

/// IndexError, naming `op`, unless every one of `labels`, i64, is a class or `ignore_index`. On a CUDA device nothing:
/// there the kernels below note what they find.
void require_class_labels(cpu::Stream&, const char* op, const Tensor& labels, std::int64_t classes,
                          std::int64_t ignore_index);
inline void require_class_labels(cuda::Stream&, const char*, const Tensor&, std::int64_t, std::int64_t) {}

/// Where a row's probabilities are found again: p = exp((x - most) - log_sum). Both [rows], as are the losses, in the
/// type of the result. `labels` is i64 [rows] or of the result's type [rows, C].
void cross_entropy(cpu::Stream&, const Tensor& logits, const Tensor& labels, const CrossEntropyOptions& options,
                   const Tensor& most, const Tensor& log_sum, const Tensor& losses);
void cross_entropy(cuda::Stream&, const Tensor& logits, const Tensor& labels, const CrossEntropyOptions& options,
                   const Tensor& most, const Tensor& log_sum, const Tensor& losses);

/// For Reduction::sum and mean: `result`, one element of the losses' type, and `row_weight`, f64 [1], what a row's loss
/// is multiplied by in it.
void cross_entropy_total(cpu::Stream&, const Tensor& losses, const Tensor& labels, const CrossEntropyOptions& options,
                         const Tensor& result, const Tensor& row_weight);
void cross_entropy_total(cuda::Stream&, const Tensor& losses, const Tensor& labels, const CrossEntropyOptions& options,
                         const Tensor& result, const Tensor& row_weight);

/// dx = scale share (p sum(target) - target), 0 in ignored rows. `scale` is [rows] or one element; an absent share
/// is 1. dx may be the logits.
void cross_entropy_grad(cpu::Stream&, const Tensor& logits, const Tensor& labels, const CrossEntropyOptions& options,
                        const Tensor& most, const Tensor& log_sum, const Tensor& scale, const Tensor& row_weight,
                        const Tensor& dx);
void cross_entropy_grad(cuda::Stream&, const Tensor& logits, const Tensor& labels, const CrossEntropyOptions& options,
                        const Tensor& most, const Tensor& log_sum, const Tensor& scale, const Tensor& row_weight,
                        const Tensor& dx);

/// Adds to `count`, one i64: see hearth::count_correct; labels i64.
void count_correct(cpu::Stream&, const Tensor& logits, const Tensor& labels, std::int64_t k, std::int64_t ignore_index,
                   const Tensor& count);
void count_correct(cuda::Stream&, const Tensor& logits, const Tensor& labels, std::int64_t k, std::int64_t ignore_index,
                   const Tensor& count);

}  // namespace kernels
}  // namespace hearth
