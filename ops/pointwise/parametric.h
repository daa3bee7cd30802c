// SPDX-License-Identifier: Apache-2.0
// Functions of one tensor and a few numbers, element by element. The list is parametric_table.h.
#pragma once

#include <limits>

#include "core/cpu/stream.h"
#include "core/cuda/stream.h"
#include "core/tensor.h"
#include "ops/pointwise/parametric_table.h"

namespace hearth {

/// The functions below take x of any shape and floating type; y has both. 16-bit types are computed in f32 and rounded
/// once. DTypeError for integers, UsageError for an absent x and for numbers outside of the stated range.

/// x where it is above 0, else negative_slope x.
HEARTH_API Tensor leaky_relu(const Tensor& x, double negative_slope = 0.01);
/// x where it is above 0, else alpha (e^x - 1).
HEARTH_API Tensor elu(const Tensor& x, double alpha = 1.0);
/// log(1 + e^(beta x)) / beta, without overflow. beta > 0.
HEARTH_API Tensor softplus(const Tensor& x, double beta = 1.0);
/// x, but at least `low` and at most `high`. The gradient is 0 where x lies outside. low <= high; NaN stays NaN. For
/// integers see maximum and minimum.
HEARTH_API Tensor clamp(const Tensor& x, double low, double high = std::numeric_limits<double>::infinity());

namespace kernels {

enum class Parametric {
#define HEARTH_LIST_PARAMETRIC(name) name,
  HEARTH_PARAMETRIC(HEARTH_LIST_PARAMETRIC)
#undef HEARTH_LIST_PARAMETRIC
};

/// A function and its numbers.
struct ParametricFunction {
  Parametric function;
  double a = 0, b = 0;
};

/// y = f(x). Both contiguous, of one shape and floating type; y may be x.
void parametric(cpu::Stream&, const ParametricFunction& f, const Tensor& x, const Tensor& y);
void parametric(cuda::Stream&, const ParametricFunction& f, const Tensor& x, const Tensor& y);
/// dx = f'(x) dy. dx may be dy.
void parametric_grad(cpu::Stream&, const ParametricFunction& f, const Tensor& x, const Tensor& dy, const Tensor& dx);
void parametric_grad(cuda::Stream&, const ParametricFunction& f, const Tensor& x, const Tensor& dy, const Tensor& dx);

}  // namespace kernels
}  // namespace hearth
