// SPDX-License-Identifier: Apache-2.0
// A batch normalisation with its ReLU and the max pooling behind it as one op: the stem of a ResNet in training. What
// the norm makes is never written to memory. Internal; models use nn::ConvNorm::pooled().
#pragma once

#include <string>

#include "core/cpu/stream.h"
#include "core/cuda/stream.h"
#include "ops/norm/batch_norm.h"
#include "ops/pool/kernels.h"
#include "ops/pool/pool.h"

namespace hearth {
namespace detail {

/// Why batch_norm_pool() is not for these, or empty: it is for training with a ReLU, with channels in multiples of 8
/// (on the CPU of 32) and windows of fewer than 255 pixels.
std::string why_no_batch_norm_pool(const Tensor& x, const BatchNormOptions& options, const MaxPool2dOptions& pool);
/// max_pool2d(batch_norm(x)), with its values and errors; `moments` as for batch_norm(). UsageError where there is a
/// reason why not.
Tensor batch_norm_pool(const Tensor& x, const Tensor& gamma, const Tensor& beta, const BatchNormOptions& options,
                       const Tensor& running_mean, const Tensor& running_var, const MaxPool2dOptions& pool,
                       const ChannelMoments* moments);

}  // namespace detail

namespace kernels {

/// y = max of the windows of relu(norm(x)), each rounded; `taps` [N,P,Q,C], u8, gets the position of each maximum in
/// its window, or on a device `shut_tap` where that is not above 0; it may be absent.
inline constexpr int shut_tap = 255;
void batch_norm_pool(cpu::Stream&, const PoolShape& shape, const Tensor& x, const Tensor& coefficients, const Tensor& y,
                     const Tensor& taps);
void batch_norm_pool(cuda::Stream&, const PoolShape& shape, const Tensor& x, const Tensor& coefficients,
                     const Tensor& y, const Tensor& taps);
/// batch_norm_grad_sums() where the norm's gradient is that which the windows give back.
void batch_norm_pool_grad_sums(cpu::Stream&, const PoolShape& shape, const Tensor& x, const Tensor& coefficients,
                               const Tensor& taps, const Tensor& dy, const Tensor& rstd, const Tensor& d_gamma,
                               const Tensor& d_beta, const Tensor& corrections);
void batch_norm_pool_grad_sums(cuda::Stream&, const PoolShape& shape, const Tensor& x, const Tensor& coefficients,
                               const Tensor& taps, const Tensor& dy, const Tensor& rstd, const Tensor& d_gamma,
                               const Tensor& d_beta, const Tensor& corrections);
/// batch_norm_grad() likewise; dx may be x.
void batch_norm_pool_grad(cpu::Stream&, const PoolShape& shape, const Tensor& x, const Tensor& coefficients,
                          const Tensor& taps, const Tensor& dy, const Tensor& corrections, const Tensor& dx);
void batch_norm_pool_grad(cuda::Stream&, const PoolShape& shape, const Tensor& x, const Tensor& coefficients,
                          const Tensor& taps, const Tensor& dy, const Tensor& corrections, const Tensor& dx);

}  // namespace kernels
}  // namespace hearth
