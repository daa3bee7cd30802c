// SPDX-License-Identifier: Apache-2.0
// Comparisons, and the choice between two tensors by a mask. Shapes broadcast as in binary.h.
#pragma once

#include "core/cpu/stream.h"
#include "core/cuda/stream.h"
#include "core/tensor.h"
#include "ops/pointwise/comparison.h"

namespace hearth {

/// equal, not_equal, less, less_equal, greater, greater_equal, logical_and, logical_or: y[i] = a[i] < b[i] and so on,
/// of type bool and the broadcast shape. a and b of one element type, any; 16-bit types are compared as f32, NaN is
/// only unequal. The number beside an integer tensor must be a value of its type. No gradient.
/// ShapeError if the shapes do not broadcast, DTypeError if the types differ, DeviceError, UsageError.
#define HEARTH_DECLARE_COMPARISON(name, ...)                \
  HEARTH_API Tensor name(const Tensor& a, const Tensor& b); \
  HEARTH_API Tensor name(const Tensor& a, double b);
HEARTH_COMPARISONS(HEARTH_DECLARE_COMPARISON)
#undef HEARTH_DECLARE_COMPARISON

/// a where `condition` is true, else b; all three broadcast. condition bool; a and b of one element type, any. a and b
/// get gradients where they were taken. ShapeError, DTypeError, DeviceError, UsageError as above.
HEARTH_API Tensor where(const Tensor& condition, const Tensor& a, const Tensor& b);
/// The same with a number, rounded to the tensor's type; beside an integer tensor it must be a value of its type.
HEARTH_API Tensor where(const Tensor& condition, const Tensor& a, double b);
HEARTH_API Tensor where(const Tensor& condition, double a, const Tensor& b);

/// x with `value` where `mask` is true; the mask (bool) broadcasts to x's shape. x gets a gradient where it was kept.
HEARTH_API Tensor masked_fill(const Tensor& x, const Tensor& mask, double value);

namespace kernels {

/// A tensor of any strides whose shape broadcasts to the result's; or, if it is absent, one number.
struct Operand {
  Tensor tensor;
  double number = 0;
};

/// y (bool, contiguous) = a ? b, element by element.
void compare(cpu::Stream&, Comparison, const Operand& a, const Operand& b, const Tensor& y);
void compare(cuda::Stream&, Comparison, const Operand& a, const Operand& b, const Tensor& y);
/// y (contiguous) = condition ? a : b. condition is bool; a and b have y's type.
void select(cpu::Stream&, const Tensor& condition, const Operand& a, const Operand& b, const Tensor& y);
void select(cuda::Stream&, const Tensor& condition, const Operand& a, const Operand& b, const Tensor& y);

}  // namespace kernels
}  // namespace hearth
