// SPDX-License-Identifier: Apache-2.0
// Arithmetic of two tensors, element by element, with broadcasting: extents are aligned at the last axis and must be
// equal or 1.
#pragma once

#include "core/cpu/stream.h"
#include "core/cuda/stream.h"
#include "core/tensor.h"
#include "ops/pointwise/binary_function.h"

namespace hearth {

/// y = a + b, a - b, a * b. Floating types, or i32 and i64 without gradient (which wrap around on overflow).
/// y has the broadcast shape and the common type. ShapeError if the shapes do not broadcast, DTypeError if the types
/// differ (autocast converts) or are not supported, UsageError for an absent operand.
HEARTH_API Tensor add(const Tensor& a, const Tensor& b);
HEARTH_API Tensor sub(const Tensor& a, const Tensor& b);
HEARTH_API Tensor mul(const Tensor& a, const Tensor& b);
/// y = a / b. Floating types only.
HEARTH_API Tensor div(const Tensor& a, const Tensor& b);
/// y = a to the power of b. Floating types only; f32 under autocast. As `cmath`: NaN for a negative a and a b that is
/// no whole number. The gradient of b is 0 where a is 0 and b at least 0, that of a is 0 where b is 0.
HEARTH_API Tensor pow(const Tensor& a, const Tensor& b);
/// The larger or smaller of both. NaN wins; of equals the gradient goes to a.
HEARTH_API Tensor maximum(const Tensor& a, const Tensor& b);
HEARTH_API Tensor minimum(const Tensor& a, const Tensor& b);

/// The same with a number, which keeps its precision beside 16-bit tensors (arithmetic is in f32). Beside an integer
/// tensor it must be a whole number in the type's range (UsageError).
HEARTH_API Tensor add(const Tensor& a, double b);
HEARTH_API Tensor sub(const Tensor& a, double b);
HEARTH_API Tensor mul(const Tensor& a, double b);
HEARTH_API Tensor div(const Tensor& a, double b);
HEARTH_API Tensor pow(const Tensor& a, double b);
HEARTH_API Tensor pow(double a, const Tensor& b);
HEARTH_API Tensor maximum(const Tensor& a, double b);
HEARTH_API Tensor minimum(const Tensor& a, double b);
HEARTH_API Tensor sub(double a, const Tensor& b);
HEARTH_API Tensor div(double a, const Tensor& b);

namespace kernels {

/// y = f(a, b), or f(a, b, dy) of a gradient. y contiguous; a and b of any strides, of shapes that broadcast to y's; y
/// may be an operand that is contiguous and of its shape. Both have y's type, or one is a number: a scalar [] of acc_t
/// of that type, on the CPU whatever the device. dy contiguous, like y; y may be dy.
void binary(cpu::Stream&, Binary function, const Tensor& a, const Tensor& b, const Tensor& y, const Tensor& dy = {});
void binary(cuda::Stream&, Binary function, const Tensor& a, const Tensor& b, const Tensor& y, const Tensor& dy = {});

}  // namespace kernels
}  // namespace hearth
