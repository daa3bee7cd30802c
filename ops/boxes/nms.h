// SPDX-License-Identifier: Apache-2.0
// Non-maximum suppression: which boxes stay.
#pragma once

#include <bit>
#include <cstdint>

#include "core/cpu/stream.h"
#include "core/cuda/stream.h"
#include "core/tensor.h"
#include "ops/index/counted_list.h"

namespace hearth {

/// The boxes that no box of higher score, itself kept, overlaps by more than `threshold` (intersection over union):
/// their indices by descending score, as torchvision's nms has them.
///
/// boxes [n, 4] as corners with scores [n], or of a batch of images [N, n, 4] with [N, n], of one floating type; the
/// indices are i64 [n] or [N, n]. Equal scores keep their order, NaN comes first. f16 and bf16 are compared in f32. On
/// a CUDA device the indices and their counts stay there; up to 4,096 boxes an image are one launch. No gradient.
/// ShapeError, DTypeError, DeviceError, UsageError unless the threshold is in [0, 1].
HEARTH_API CountedList nms(const Tensor& boxes, const Tensor& scores, double threshold);

/// The same, where boxes of unlike class do not suppress each other: classes i32 or i64, of the scores' shape. As
/// torchvision's batched_nms.
HEARTH_API CountedList batched_nms(const Tensor& boxes, const Tensor& scores, const Tensor& classes, double threshold);

namespace kernels {

/// indices i64 [N, n] and counts i64 [N] of boxes [N, n, 4], scores [N, n], both f32 or f64, and classes (i64 [N, n],
/// or absent). Contiguous, n > 0.
void nms(cpu::Stream&, const Tensor& boxes, const Tensor& scores, const Tensor& classes, double threshold,
         const Tensor& indices, const Tensor& counts);
void nms(cuda::Stream&, const Tensor& boxes, const Tensor& scores, const Tensor& classes, double threshold,
         const Tensor& indices, const Tensor& counts);

/// The largest number of T that is no larger than the threshold: x > bound_of<T>(t) exactly where x > t.
template <class T>
T bound_of(double threshold) {
  const T near = static_cast<T>(threshold);
  // Bounds are above 0, so that the number below one has the next smaller bits.
  if (static_cast<double>(near) <= threshold) return near;
  if constexpr (sizeof(T) == 4) return std::bit_cast<T>(std::bit_cast<std::uint32_t>(near) - 1);
  return near;
}

}  // namespace kernels
}  // namespace hearth
