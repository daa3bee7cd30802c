// SPDX-License-Identifier: Apache-2.0
// Batch normalisation over the last axis' channels, with an optional residual and ReLU in the same pass.
#pragma once

#include "core/cpu/stream.h"
#include "core/cuda/stream.h"
#include "core/half.h"
#include "core/tensor.h"
#include "ops/activation.h"

namespace hearth {

class Collective;
struct ChannelMoments;

struct BatchNormOptions {
  /// True: normalise by the batch's own statistics and update the running ones. False: by the running ones.
  bool training = true;
  /// Share of the batch in a running statistic: running = (1 - momentum) running + momentum batch.
  double momentum = 0.1;
  /// Added to the variance.
  double eps = 1e-5;
  /// none or relu.
  Activation activation = Activation::none;
  /// Training: statistics are of the x of all ranks, whose numbers of rows may differ; all ranks compute the layer, and
  /// its gradient. Gradients of gamma and beta are this rank's. Waits for a device. Null: of this x alone.
  Collective* group = nullptr;
};

/// y = activation((x - mean) / sqrt(variance + eps) * gamma + beta + residual), statistics per channel
/// (Ioffe and Szegedy, 2015).
///
/// x [..., C], any floating type; y and `residual` (may be absent) have its shape and type. gamma, beta, running_mean
/// and running_var are [C] in the type that sums over x are kept in: f64 for f64, else f32. Training normalises by the
/// biased variance, and updates the running statistics in place (the variance unbiased, as in PyTorch); both may be
/// absent then. Sums are kept in f32 or wider around each block's own mean, and what rounding takes from the mean is
/// kept beside it, so a large mean costs no precision.
/// Training needs at least two values a channel.
/// ShapeError, DTypeError or UsageError for arguments that do not fit.
HEARTH_API Tensor batch_norm(const Tensor& x, const Tensor& gamma, const Tensor& beta, const BatchNormOptions& options,
                             const Tensor& running_mean, const Tensor& running_var, const Tensor& residual = {});

namespace kernels {

/// How the gradient knows where the ReLU was open.
enum class ReluGate : std::uint8_t {
  none,        ///< there is no ReLU
  from_input,  ///< recomputed from x
  from_mask,   ///< read from the bits that the forward pass stored
};

/// What rounding to P takes from a mean: an f32 mean of 1e4 deviations is up to 5e-4 deviations off. 0 of infinities.
template <class P>
HEARTH_HD double rounding_of(double mean) {
  const double rest = mean - static_cast<double>(static_cast<P>(mean));
  return rest == rest ? rest : 0.0;
}

/// What normalises the channels, beside their statistics, and what comes of it: `coefficients` [4, C] in the type of
/// gamma: mean (rounded), scale = gamma rstd, shift = beta - rest scale, and rest, what rounding took from the mean.
/// `rstd`, f64 [C].
struct ChannelNorm {
  const Tensor &gamma, &beta;
  const BatchNormOptions& options;
  const Tensor &running_mean, &running_var, &coefficients, &rstd;
};
/// Training: from the statistics of x, which also move the running ones (may be absent). Else from the running ones.
void batch_norm_coefficients(cpu::Stream&, const Tensor& x, const ChannelNorm& o);
void batch_norm_coefficients(cuda::Stream&, const Tensor& x, const ChannelNorm& o);
/// The same for training, without x: `values` a channel, whose moments are given.
void batch_norm_coefficients(cuda::Stream&, const ChannelMoments& moments, std::int64_t values, const ChannelNorm& o);
/// What these leave, on the host, from mean and biased variance of each channel over so many values; in evaluation both
/// become the running ones.
void write_coefficients(double* mean, double* variance, double values, const ChannelNorm& o);

/// y = relu?((x - mean) scale + shift + residual). `residual` may be absent. `mask` (may be absent), u8, receives the
/// bits of y > 0 in the layout of FoldedRows.
void batch_norm(cpu::Stream&, const Tensor& x, const Tensor& coefficients, const Tensor& residual, bool relu,
                const Tensor& y, const Tensor& mask);
void batch_norm(cuda::Stream&, const Tensor& x, const Tensor& coefficients, const Tensor& residual, bool relu,
                const Tensor& y, const Tensor& mask);

/// What the gradient finds of the forward pass.
struct BatchNormSaved {
  const Tensor &x, &coefficients;
  ReluGate gate;
  const Tensor& mask;
};

/// From the sums of g and of g (x - mean) per channel, where g is dy behind the ReLU: the gradients of gamma and beta,
/// [C], and `corrections` [2, C] for batch_norm_grad; each may be absent. In all three the mean is that before
/// rounding.
void batch_norm_grad_sums(cpu::Stream&, const BatchNormSaved& saved, const Tensor& dy, const Tensor& rstd,
                          const Tensor& d_gamma, const Tensor& d_beta, const Tensor& corrections);
void batch_norm_grad_sums(cuda::Stream&, const BatchNormSaved& saved, const Tensor& dy, const Tensor& rstd,
                          const Tensor& d_gamma, const Tensor& d_beta, const Tensor& corrections);

/// dx = scale (g - a - b (x - mean)), the mean as rounded; `corrections` is [2, C]: a, b; absent means 0. `d_residual`
/// (may be absent) receives g. dx or d_residual may be dy itself, and dx may be x.
void batch_norm_grad(cpu::Stream&, const BatchNormSaved& saved, const Tensor& dy, const Tensor& corrections,
                     const Tensor& dx, const Tensor& d_residual);
void batch_norm_grad(cuda::Stream&, const BatchNormSaved& saved, const Tensor& dy, const Tensor& corrections,
                     const Tensor& dx, const Tensor& d_residual);

}  // namespace kernels
}  // namespace hearth
