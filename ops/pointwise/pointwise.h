// SPDX-License-Identifier: Apache-2.0
// Functions of one tensor, element by element. The lists are table.h and, of those with numbers, parametric_table.h.
#pragma once

#include <limits>

#include "core/cpu/stream.h"
#include "core/cuda/stream.h"
#include "core/tensor.h"
#include "ops/pointwise/function.h"

namespace hearth {

/// relu, gelu, gelu_tanh, silu, tanh, sigmoid, exp, log, sqrt, rsqrt, square, abs, neg, sin, cos, erf: y[i] = f(x[i]).
/// x of any shape and floating type; y has both. 16-bit types are computed in f32 and rounded once.
/// DTypeError for integers, UsageError for an absent x.
#define HEARTH_DECLARE_POINTWISE(name, domain) HEARTH_API Tensor name(const Tensor& x);
HEARTH_POINTWISE(HEARTH_DECLARE_POINTWISE)
#undef HEARTH_DECLARE_POINTWISE

// The same with numbers; UsageError also for numbers outside of the stated range.

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

/// A function and its numbers, if it has any.
struct PointwiseFunction {
  PointwiseFunction(Pointwise which_, double a_ = 0, double b_ = 0) : which(which_), a(a_), b(b_) {}  // NOLINT
  Pointwise which;
  double a, b;
};

/// y = f(x). Both contiguous, of one shape and floating type; y may be x.
void pointwise(cpu::Stream&, const PointwiseFunction& f, const Tensor& x, const Tensor& y);
void pointwise(cuda::Stream&, const PointwiseFunction& f, const Tensor& x, const Tensor& y);
/// dx = f' * dy, where f' comes from `kept`: x or y as the functor says (undefined if it needs neither). dx may be dy.
void pointwise_grad(cpu::Stream&, const PointwiseFunction& f, const Tensor& kept, const Tensor& dy, const Tensor& dx);
void pointwise_grad(cuda::Stream&, const PointwiseFunction& f, const Tensor& kept, const Tensor& dy, const Tensor& dx);

}  // namespace kernels
}  // namespace hearth
