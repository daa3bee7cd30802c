// SPDX-License-Identifier: Apache-2.0
// Cross entropy of a softmax with labels or label distributions.
#pragma once

#include <cstdint>

#include "hearth/core/cpu/stream.h"
#include "hearth/core/tensor.h"

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
};

/// -sum over classes of target * log softmax(logits), reduced over the rows.
///
/// logits [..., C], any floating type, read as they are. labels: i32 or i64 [...], classes in [0, C) or ignore_index;
/// or floating [..., C], the target of every class (mixed labels). The result is f32, f64 for f64 logits: a scalar, or
/// [...] for Reduction::none. Sums in f32 or wider. Labels get no gradient.
/// IndexError for a label outside the classes, naming it and its position; ShapeError, DTypeError, UsageError for
/// arguments that do not fit.
Tensor cross_entropy(const Tensor& logits, const Tensor& labels, const CrossEntropyOptions& options = {});

/// How many rows have their label among the k largest logits; of equal logits the first counts as larger.
/// logits [..., C] floating, labels i32 or i64 [...]; rows labelled ignore_index are not counted. 1 <= k <= C.
/// Not differentiable; waits for the device.
std::int64_t count_correct(const Tensor& logits, const Tensor& labels, std::int64_t k = 1,
                           std::int64_t ignore_index = -100);

namespace kernels {

/// Where a row's probabilities are found again: p = exp((x - most) - log_sum). Both [rows], as are the losses, in the
/// type of the result. `labels` is i64 [rows] or of the result's type [rows, C].
void cross_entropy(cpu::Stream&, const Tensor& logits, const Tensor& labels, const CrossEntropyOptions& options,
                   const Tensor& most, const Tensor& log_sum, const Tensor& losses);

/// dx = scale (p sum(target) - target), 0 in ignored rows. `scale` is [rows] or [1]. dx may be the logits.
void cross_entropy_grad(cpu::Stream&, const Tensor& logits, const Tensor& labels, const CrossEntropyOptions& options,
                        const Tensor& most, const Tensor& log_sum, const Tensor& scale, const Tensor& dx);

/// See hearth::count_correct; labels i64.
std::int64_t count_correct(cpu::Stream&, const Tensor& logits, const Tensor& labels, std::int64_t k,
                           std::int64_t ignore_index);

}  // namespace kernels
}  // namespace hearth
