// SPDX-License-Identifier: Apache-2.0
// Functions of one tensor, element by element. The list is table.h.
#pragma once

#include "core/cpu/stream.h"
#include "core/cuda/stream.h"
#include "core/tensor.h"
#include "ops/pointwise/table.h"

namespace hearth {

/// relu, gelu, gelu_tanh, silu, tanh, sigmoid, exp, log, sqrt, rsqrt, square, abs, neg, sin, cos, erf: y[i] = f(x[i]).
/// x of any shape and floating type; y has both. 16-bit types are computed in f32 and rounded once.
/// DTypeError for integers, UsageError for an absent x.
#define HEARTH_DECLARE_POINTWISE(name, domain) HEARTH_API Tensor name(const Tensor& x);
HEARTH_POINTWISE(HEARTH_DECLARE_POINTWISE)
#undef HEARTH_DECLARE_POINTWISE

namespace kernels {

enum class Pointwise {
#define HEARTH_LIST_POINTWISE(name, domain) name,
  HEARTH_POINTWISE(HEARTH_LIST_POINTWISE)
#undef HEARTH_LIST_POINTWISE
};

/// y = f(x). Both contiguous, of one shape and floating type; y may be x.
void pointwise(cpu::Stream&, Pointwise function, const Tensor& x, const Tensor& y);
void pointwise(cuda::Stream&, Pointwise function, const Tensor& x, const Tensor& y);
/// dx = f' * dy, where f' comes from `kept`: x or y as the functor says (undefined if it needs neither). dx may be dy.
void pointwise_grad(cpu::Stream&, Pointwise function, const Tensor& kept, const Tensor& dy, const Tensor& dx);
void pointwise_grad(cuda::Stream&, Pointwise function, const Tensor& kept, const Tensor& dy, const Tensor& dx);

}  // namespace kernels
}  // namespace hearth
