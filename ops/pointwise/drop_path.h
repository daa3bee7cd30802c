// SPDX-License-Identifier: Apache-2.0
// Stochastic depth.
#pragma once

#include "core/cpu/stream.h"
#include "core/cuda/stream.h"
#include "core/random.h"
#include "core/tensor.h"

namespace hearth {

/// Zeroes each sample x[n] with probability p and multiplies the others by 1 / (1 - p). x itself when not training or p
/// is 0. x [N, ...] of any floating type (ShapeError for rank 0); 0 <= p < 1 (UsageError).
/// The choice is that of dropout() over [N]: a pure function of next_random_key() and the sample's number in the whole
/// batch of the step; nothing but the key is kept. Source: Huang et al., "Deep Networks with Stochastic Depth" (2016).
HEARTH_API Tensor drop_path(const Tensor& x, double p, bool training);
/// residual + drop_path(x, p, training) in one pass. Both of one shape, type and device (ShapeError, DTypeError,
/// DeviceError). Where a sample is dropped, y[n] is residual[n] to the bit, whatever x[n] is.
HEARTH_API Tensor add_drop_path(const Tensor& residual, const Tensor& x, double p, bool training);

namespace kernels {
/// y[n] = (residual[n] +) (keeps(key, n) ? x[n] / (1 - p) : 0). Contiguous [N, ...], of one floating type and at least
/// one element; `residual` perhaps undefined. y may be x or residual.
void drop_path(cpu::Stream&, const Tensor& x, const Tensor& residual, const RandomKey& key, double p, const Tensor& y);
void drop_path(cuda::Stream&, const Tensor& x, const Tensor& residual, const RandomKey& key, double p, const Tensor& y);
}  // namespace kernels
}  // namespace hearth
