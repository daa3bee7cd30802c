// SPDX-License-Identifier: Apache-2.0
// Order along an axis. Any element type; NaN is the largest element, -0 equals 0, and equals keep their order,
// whichever way. Negative axes count from the end.
#pragma once

#include <cstdint>

#include "core/cpu/stream.h"
#include "core/cuda/stream.h"
#include "core/tensor.h"

namespace hearth {

/// Elements in order and where they were.
struct Sorted {
  Tensor values;   ///< of x's type
  Tensor indices;  ///< i64, positions along the axis
};

/// The elements along `axis` in ascending or descending order, and their positions. The gradient goes back to those.
/// ShapeError for an axis out of range, UsageError when x is absent.
HEARTH_API Sorted sort(const Tensor& x, int axis = -1, bool descending = false);
/// The positions of sort(): i64 of x's shape. No gradient.
HEARTH_API Tensor argsort(const Tensor& x, int axis = -1, bool descending = false);
/// The k largest (or smallest) elements along `axis`, in descending (ascending) order, and their positions; of equals
/// the first are taken. The gradient goes back to them. ShapeError unless 0 <= k <= extent, and as sort().
HEARTH_API Sorted topk(const Tensor& x, std::int64_t k, int axis = -1, bool largest = true);

namespace kernels {

/// The columns of the first k elements in order of each row of x [rows, cols]: i64 [rows, k]. Contiguous.
void sort_columns(cpu::Stream&, const Tensor& x, bool descending, const Tensor& columns);
void sort_columns(cuda::Stream&, const Tensor& x, bool descending, const Tensor& columns);

}  // namespace kernels
}  // namespace hearth
