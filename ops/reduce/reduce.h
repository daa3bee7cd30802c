// SPDX-License-Identifier: Apache-2.0
// Sums, means and extremes over axes.
#pragma once

#include <concepts>
#include <cstdint>
#include <vector>

#include "core/cpu/stream.h"
#include "core/cuda/stream.h"
#include "core/tensor.h"

namespace hearth {

/// The sum of x over `axes` (negative ones count from the end; none given: over all). The axes vanish from the shape,
/// or stay with extent 1 if keep_dims. x of any shape and floating type, y of the same type; the sum of nothing is 0.
/// Partial sums are combined in f64 and in an order that depends on the shape only.
/// ShapeError for an axis that is out of range or given twice, DTypeError for integers.
HEARTH_API Tensor sum(const Tensor& x, const std::vector<int>& axes = {}, KeepDims keep_dims = false);

/// The sum divided by the number of elements summed. ShapeError where that is 0.
HEARTH_API Tensor mean(const Tensor& x, const std::vector<int>& axes = {}, KeepDims keep_dims = false);

/// The largest or smallest element over `axes`; NaN wins. Floating types, or i32 and i64 without gradient.
/// The gradient goes to the first of equals (row-major). ShapeError where there is nothing to choose from.
HEARTH_API Tensor max(const Tensor& x, const std::vector<int>& axes = {}, KeepDims keep_dims = false);
HEARTH_API Tensor min(const Tensor& x, const std::vector<int>& axes = {}, KeepDims keep_dims = false);

/// As max and min, but the gradient is divided evenly among equals; NaN where NaN won.
HEARTH_API Tensor amax(const Tensor& x, const std::vector<int>& axes = {}, KeepDims keep_dims = false);
HEARTH_API Tensor amin(const Tensor& x, const std::vector<int>& axes = {}, KeepDims keep_dims = false);

/// Over one axis: sum(x, 0).
template <std::signed_integral Axis>
Tensor sum(const Tensor& x, Axis axis, KeepDims keep_dims = false) {
  return x.sum(axis, keep_dims);
}
template <std::signed_integral Axis>
Tensor mean(const Tensor& x, Axis axis, KeepDims keep_dims = false) {
  return x.mean(axis, keep_dims);
}
template <std::signed_integral Axis>
Tensor max(const Tensor& x, Axis axis, KeepDims keep_dims = false) {
  return x.max(axis, keep_dims);
}
template <std::signed_integral Axis>
Tensor min(const Tensor& x, Axis axis, KeepDims keep_dims = false) {
  return x.min(axis, keep_dims);
}

/// The place of the largest element along `axis`, the first of equals, as i64. No gradient.
HEARTH_API Tensor argmax(const Tensor& x, int axis, KeepDims keep_dims = false);
/// The place of the smallest element along `axis`, the first of equals, as i64. No gradient.
HEARTH_API Tensor argmin(const Tensor& x, int axis, KeepDims keep_dims = false);

namespace kernels {

/// y[o, i] = scale * sum over r of x[o, r, i]; both contiguous. y has x's type, or one of both is f64.
void sum(cpu::Stream&, const Tensor& x, std::int64_t outer, std::int64_t reduced, std::int64_t inner, double scale,
         const Tensor& y);
void sum(cuda::Stream&, const Tensor& x, std::int64_t outer, std::int64_t reduced, std::int64_t inner, double scale,
         const Tensor& y);

enum class Extreme { largest, smallest };
/// Per row of x [rows, cols >= 1]: the extreme element and its column (i64). `y` may be undefined.
void extreme(cpu::Stream&, Extreme kind, const Tensor& x, std::int64_t rows, std::int64_t cols, const Tensor& y,
             const Tensor& column);
void extreme(cuda::Stream&, Extreme kind, const Tensor& x, std::int64_t rows, std::int64_t cols, const Tensor& y,
             const Tensor& column);
/// dx [rows, cols] = 0 except dx[r, column[r]] = dy[r].
void extreme_grad(cpu::Stream&, const Tensor& dy, const Tensor& column, std::int64_t rows, std::int64_t cols,
                  const Tensor& dx);
void extreme_grad(cuda::Stream&, const Tensor& dy, const Tensor& column, std::int64_t rows, std::int64_t cols,
                  const Tensor& dx);

}  // namespace kernels
}  // namespace hearth
