// SPDX-License-Identifier: Apache-2.0
// Arithmetic of two tensors, element by element, with broadcasting: extents are aligned at the last axis and must be
// equal or 1. These are the only ops that broadcast.
#pragma once

#include "core/cpu/stream.h"
#include "core/cuda/stream.h"
#include "core/tensor.h"

namespace hearth {

/// y = a + b, a - b, a * b. Floating types, or i32 and i64 without gradient (which wrap around on overflow).
/// y has the broadcast shape and the common type. ShapeError if the shapes do not broadcast, DTypeError if the types
/// differ (autocast converts) or are not supported, UsageError for an absent operand.
HEARTH_API Tensor add(const Tensor& a, const Tensor& b);
HEARTH_API Tensor sub(const Tensor& a, const Tensor& b);
HEARTH_API Tensor mul(const Tensor& a, const Tensor& b);
/// y = a / b. Floating types only.
HEARTH_API Tensor div(const Tensor& a, const Tensor& b);
/// The larger or smaller of both. Not-a-number wins; of equals the gradient goes to a.
HEARTH_API Tensor maximum(const Tensor& a, const Tensor& b);
HEARTH_API Tensor minimum(const Tensor& a, const Tensor& b);

/// The same with a number, which keeps its precision beside 16-bit tensors (arithmetic is in f32). Beside an integer
/// tensor it must be a whole number in the type's range (UsageError).
HEARTH_API Tensor add(const Tensor& a, double b);
HEARTH_API Tensor sub(const Tensor& a, double b);
HEARTH_API Tensor mul(const Tensor& a, double b);
HEARTH_API Tensor div(const Tensor& a, double b);
HEARTH_API Tensor maximum(const Tensor& a, double b);
HEARTH_API Tensor minimum(const Tensor& a, double b);
HEARTH_API Tensor sub(double a, const Tensor& b);
HEARTH_API Tensor div(double a, const Tensor& b);

namespace kernels {

enum class Binary { add, sub, mul, div, maximum, minimum };
/// Which operand a gradient is for.
enum class Side { a, b };

/// y = f(a, b). y contiguous; a and b of any strides, of shapes that broadcast to y's; y may be an operand that is
/// contiguous and of its shape. Both have y's type, or one is a number: a scalar [] of acc_t of that type, on the CPU
/// whatever the device.
void binary(cpu::Stream&, Binary function, const Tensor& a, const Tensor& b, const Tensor& y);
void binary(cuda::Stream&, Binary function, const Tensor& a, const Tensor& b, const Tensor& y);
/// dx = dy * df/d(side) where that is no plain product: div for side b, maximum and minimum for both sides.
/// dy and dx contiguous, of the broadcast shape; dx may be dy.
void binary_grad(cpu::Stream&, Binary function, Side side, const Tensor& a, const Tensor& b, const Tensor& dy,
                 const Tensor& dx);
void binary_grad(cuda::Stream&, Binary function, Side side, const Tensor& a, const Tensor& b, const Tensor& dy,
                 const Tensor& dx);

}  // namespace kernels
}  // namespace hearth
