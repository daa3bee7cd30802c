// SPDX-License-Identifier: Apache-2.0
// The head of a model over a vocabulary and its loss, without the logits.
#pragma once

#include <cstdint>

#include "ops/loss/cross_entropy.h"

namespace hearth {

struct LinearCrossEntropyOptions {
  double label_smoothing = 0.0;  ///< as in CrossEntropyOptions
  std::int64_t ignore_index = -100;
  Reduction reduction = Reduction::mean;  ///< or sum
  /// Rows whose logits exist at a time; 0: linear_cross_entropy_rows().
  std::int64_t chunk_rows = 0;
};

/// cross_entropy(linear(x, w, b), labels, options) of which only the logits of some rows exist at a time. Where a
/// gradient is needed the forward pass makes it too, while it has the logits, for a result whose gradient is 1;
/// backward multiplies. The products are those of linear(), with sums of w's gradient in f32 or wider.
///
/// x [..., C], w [V, C] and b [V] (or absent) as linear() takes them; labels i32 or i64 [...], classes in [0, V) or
/// ignore_index. The result is an f32 scalar, f64 for f64 x. To `correct`, one i64, is added how many labels have the
/// largest logit of their row (count_correct); it may be absent. Source: Hsu et al., "Liger Kernel" (arXiv:2410.10989).
/// UsageError, ShapeError, DTypeError, DeviceError for arguments that do not fit; IndexError as cross_entropy().
HEARTH_API Tensor linear_cross_entropy(const Tensor& x, const Tensor& w, const Tensor& b, const Tensor& labels,
                                       const LinearCrossEntropyOptions& options = {}, const Tensor& correct = {});

/// The rows of a chunk of `rows` in all: so many that reading and writing the sums of w's gradient once a chunk is a
/// small part of the chunk's products. On a CUDA device as many as a twelfth of the device's whole memory holds the
/// logits of, in chunks of nearly one size; what is free of it does not count, so that bits repeat.
HEARTH_API std::int64_t linear_cross_entropy_rows(Device device, std::int64_t rows, std::int64_t classes, DType dtype);

namespace kernels {

/// The columns that logits of so many classes are given: whole tiles and aligned rows for tensor cores.
inline std::int64_t head_columns(cpu::Stream&, std::int64_t classes, DType) { return classes; }
inline std::int64_t head_columns(cuda::Stream&, std::int64_t classes, DType dtype) {
  return size_of(dtype) == 2 ? (classes + 63) / 64 * 64 : classes;
}

/// The most rows of a chunk whose logits have `row_bytes` each.
std::int64_t head_rows(cpu::Stream&, std::int64_t row_bytes);
std::int64_t head_rows(cuda::Stream&, std::int64_t row_bytes);

/// Of logits [rows, columns], of which the first `classes` count, and class labels, i64 [rows]: the losses [rows]; how
/// many labels have the largest logit of their row is added to `correct`, one i64, unless that is absent. Unless
/// `scale` is 0 the logits become scale (p - target), 0 in rows that are ignored and behind the classes.
void head_losses(cpu::Stream&, const Tensor& logits, std::int64_t classes, const Tensor& labels,
                 const CrossEntropyOptions& options, double scale, const Tensor& losses, const Tensor& correct);
void head_losses(cuda::Stream&, const Tensor& logits, std::int64_t classes, const Tensor& labels,
                 const CrossEntropyOptions& options, double scale, const Tensor& losses, const Tensor& correct);

/// into = [into +] from * (dy * share * factor). `from` f32 or f64, `into` of any type that is summed in it, and may be
/// `from`. dy is one element of from's type, share one f64. The product of the three is taken in f64.
void scale_gradient(cpu::Stream&, const Tensor& from, const Tensor& dy, const Tensor& row_weight, double factor,
                    bool adds, const Tensor& into);
void scale_gradient(cuda::Stream&, const Tensor& from, const Tensor& dy, const Tensor& row_weight, double factor,
                    bool adds, const Tensor& into);

}  // namespace kernels
}  // namespace hearth
