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
/// x is narrow. Statistics in f32 or wider, the deviations taken from the row's own mean. C = 0 is legal and empty.
/// UsageError, ShapeError or DTypeError for arguments that do not fit.
HEARTH_API Tensor layer_norm(const Tensor& x, const Tensor& gamma, const Tensor& beta, double eps = 1e-5);

namespace kernels {

/// `mean` and `rstd`, [rows] in the type of gamma, receive the statistics.
void layer_norm(cpu::Stream&, const Tensor& x, const Tensor& gamma, const Tensor& beta, double eps, const Tensor& y,
                const Tensor& mean, const Tensor& rstd);
void layer_norm(cuda::Stream&, const Tensor& x, const Tensor& gamma, const Tensor& beta, double eps, const Tensor& y,
                const Tensor& mean, const Tensor& rstd);

/// dx, which may be dy, and the gradients of gamma and beta, [C] in the type of gamma; either may be absent.
void layer_norm_grad(cpu::Stream&, const Tensor& x, const Tensor& dy, const Tensor& gamma, const Tensor& mean,
                     const Tensor& rstd, const Tensor& dx, const Tensor& d_gamma, const Tensor& d_beta);
void layer_norm_grad(cuda::Stream&, const Tensor& x, const Tensor& dy, const Tensor& gamma, const Tensor& mean,
                     const Tensor& rstd, const Tensor& dx, const Tensor& d_gamma, const Tensor& d_beta);

}  // namespace kernels
}  // namespace hearth
