// SPDX-License-Identifier: Apache-2.0
// Layer normalisation over the last axis.
#pragma once

#include "core/cpu/stream.h"
#include "core/cuda/stream.h"
#include "core/tensor.h"

namespace hearth {

/// y = (x - mean) / sqrt(variance + eps) * gamma + beta, mean and biased variance of every row (Ba, Kiros, Hinton,
/// 2016).
///
/// x [..., C], any floating type; y has its shape and type. gamma and beta are [C], f64 for f64 x, else f32, also where
/// x is of low precision. Statistics in f32 or wider, the deviations taken from the row's own mean. C = 0 is legal and
/// empty. With `low_precision`, y of f32 x has the low-precision type of autocast where that is in force: for y that
/// only products read, which would convert it first, to the same bits. UsageError, ShapeError or DTypeError for
/// arguments that do not fit.
HEARTH_API Tensor layer_norm(const Tensor& x, const Tensor& gamma, const Tensor& beta, double eps = 1e-5,
                             bool low_precision = false);

namespace kernels {

/// What layer normalisation of rows reads and writes beside them. `mean` and `rstd`, [rows] in the type of gamma,
/// receive the statistics. y has the type of the rows, or is f16 or bf16 beside f32.
struct Normalized {
  const Tensor &gamma, &beta;
  double eps;
  const Tensor &y, &mean, &rstd;
};
/// The same for the gradient, dy in the type of y. That of gamma and that of beta, [C] in the type of gamma, may each
/// be absent.
struct NormGradient {
  const Tensor &dy, &gamma, &mean, &rstd, &d_gamma, &d_beta;
};

void layer_norm(cpu::Stream&, const Tensor& x, const Normalized& o);
void layer_norm(cuda::Stream&, const Tensor& x, const Normalized& o);
/// dx may be dy where both have one type.
void layer_norm_grad(cpu::Stream&, const Tensor& x, const NormGradient& g, const Tensor& dx);
void layer_norm_grad(cuda::Stream&, const Tensor& x, const NormGradient& g, const Tensor& dx);

}  // namespace kernels
}  // namespace hearth
