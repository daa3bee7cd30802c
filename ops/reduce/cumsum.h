// SPDX-License-Identifier: Apache-2.0
// Running sums.
#pragma once

#include "core/cpu/stream.h"
#include "core/cuda/stream.h"
#include "core/tensor.h"

namespace hearth {

/// Sums along `axis` up to and with each element. x of any shape and type; y has its shape and, for floating types, its
/// type, else i64 (sums wrap around). Sums in f64, rounded once each; under autocast x is upcast to f32.
/// ShapeError for an axis out of range, UsageError when x is absent.
HEARTH_API Tensor cumsum(const Tensor& x, int axis);

namespace kernels {

/// y[r, c] = sum of x[r, 0..c], or of x[r, c..cols) if `reverse`. Contiguous, floating or i64. y may be x.
void cumsum(cpu::Stream&, const Tensor& x, std::int64_t rows, std::int64_t cols, bool reverse, const Tensor& y);
void cumsum(cuda::Stream&, const Tensor& x, std::int64_t rows, std::int64_t cols, bool reverse, const Tensor& y);

}  // namespace kernels
}  // namespace hearth
