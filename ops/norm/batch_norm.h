// SPDX-License-Identifier: Apache-2.0
// Batch normalisation over the last axis' channels, with an optional residual and ReLU in the same pass.
#pragma once

#include "hearth/core/cpu/stream.h"
#include "hearth/core/tensor.h"
#include "hearth/ops/activation.h"

namespace hearth {

struct BatchNormOptions {
  /// True: normalise by the batch's own statistics and update the running ones. False: by the running ones.
  bool training = true;
  /// Share of the batch in a running statistic: running = (1 - momentum) running + momentum batch.
  double momentum = 0.1;
  /// Added to the variance.
  double eps = 1e-5;
  /// none or relu.
  Activation activation = Activation::none;
};

/// y = activation((x - mean) / sqrt(variance + eps) * gamma + beta + residual), statistics per channel
/// (Ioffe and Szegedy, 2015).
///
/// x [..., C], any floating type; y and `residual` (may be absent) have its shape and type. gamma, beta, running_mean
/// and running_var are [C] in the type that sums over x are kept in: f64 for f64, else f32. Training normalises by the
/// biased variance, and updates the running statistics in place (the variance unbiased, as in PyTorch); both may be
/// absent then. Sums are kept in f32 or wider around each block's own mean, so a large mean costs no precision.
/// Training needs at least two values a channel.
/// ShapeError, DTypeError or UsageError for arguments that do not fit.
Tensor batch_norm(const Tensor& x, const Tensor& gamma, const Tensor& beta, const BatchNormOptions& options,
                  const Tensor& running_mean, const Tensor& running_var, const Tensor& residual = {});

namespace kernels {

/// How the gradient knows where the ReLU was open.
enum class ReluGate : std::uint8_t {
  none,        ///< there is no ReLU
  from_input,  ///< recomputed from x
  from_mask,   ///< read from the bits that the forward pass stored
};

/// Statistics of every channel: `mean` and biased `variance`, f64 [C].
void batch_norm_statistics(cpu::Stream&, const Tensor& x, const Tensor& mean, const Tensor& variance);

/// The mask for x [..., C], uninitialised: one bit an element.
Tensor make_batch_norm_mask(cpu::Stream&, const Tensor& x);

/// y = relu?((x - mean) scale + shift + residual). `coefficients` is [3, C]: mean, scale, shift. `residual` and `mask`
/// may be absent.
void batch_norm(cpu::Stream&, const Tensor& x, const Tensor& coefficients, const Tensor& residual, bool relu,
                const Tensor& y, const Tensor& mask);

/// `sums`, f64 [2, C]: the sum of g and of g (x - mean) per channel, where g is dy behind the ReLU.
void batch_norm_grad_sums(cpu::Stream&, const Tensor& x, const Tensor& dy, const Tensor& coefficients, ReluGate gate,
                          const Tensor& mask, const Tensor& sums);

/// dx = scale (g - a - b (x - mean)); `corrections` is [2, C]: a, b. `d_residual` (may be absent) receives g. dx or
/// d_residual may be dy itself.
void batch_norm_grad(cpu::Stream&, const Tensor& x, const Tensor& dy, const Tensor& coefficients,
                     const Tensor& corrections, ReluGate gate, const Tensor& mask, const Tensor& dx,
                     const Tensor& d_residual);

}  // namespace kernels
}  // namespace hearth
