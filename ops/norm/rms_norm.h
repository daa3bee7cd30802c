// SPDX-License-Identifier: Apache-2.0
// Normalisation by the root mean square of the last axis.
#pragma once

#include "core/cpu/stream.h"
#include "core/cuda/stream.h"
#include "core/tensor.h"

namespace hearth {

/// y = x / sqrt(mean x^2 + eps) * gamma, over every row (Zhang, Sennrich, 2019).
///
/// x [..., C], any floating type; y has its shape and type. gamma is [C], f64 for f64 x, else f32, also where x is
/// of low precision. Sums in f32 or wider. C = 0 is legal and empty. UsageError, ShapeError or DTypeError for arguments
/// that do not fit.
HEARTH_API Tensor rms_norm(const Tensor& x, const Tensor& gamma, double eps = 1e-6);

namespace kernels {

/// `rstd`, [rows] in the type of gamma, receives 1 / sqrt(mean x^2 + eps).
void rms_norm(cpu::Stream&, const Tensor& x, const Tensor& gamma, double eps, const Tensor& y, const Tensor& rstd);
void rms_norm(cuda::Stream&, const Tensor& x, const Tensor& gamma, double eps, const Tensor& y, const Tensor& rstd);

/// dx, which may be dy, and the gradient of gamma, [C] in its type, which may be absent.
void rms_norm_grad(cpu::Stream&, const Tensor& x, const Tensor& dy, const Tensor& gamma, const Tensor& rstd,
                   const Tensor& dx, const Tensor& d_gamma);
void rms_norm_grad(cuda::Stream&, const Tensor& x, const Tensor& dy, const Tensor& gamma, const Tensor& rstd,
                   const Tensor& dx, const Tensor& d_gamma);

}  // namespace kernels
}  // namespace hearth
