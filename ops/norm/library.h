// SPDX-License-Identifier: Apache-2.0
// Batch normalisation in training on a device, and its gradient, by the chosen implementation.
#pragma once

#include "ops/norm/batch_norm.h"

namespace hearth::kernels {

/// What a library's forward pass leaves for its own gradient. Empty where the own kernels make the gradient.
struct LibraryNorm {
  Tensor mean, inv_std;  ///< f32 [C]
  Tensor bits;           ///< where the ReLU was open, in the library's order; absent without one

  bool defined() const { return mean.defined(); }
};

/// The operands of batch_norm_coefficients and batch_norm. All tensors are contiguous.
struct BatchNormTraining {
  const BatchNormOptions& options;
  const Tensor &x, &gamma, &beta, &running_mean, &running_var, &residual;
  const ChannelMoments* moments;          ///< null where there are none
  const Tensor &coefficients, &rstd, &y;  ///< written
  const Tensor& mask;                     ///< written unless for_gradient is; may be absent
  LibraryNorm* for_gradient;              ///< written where a library is to make the gradient; null without one
};

/// Both, for options.training: by the own kernels, or by a library that is pinned.
void batch_norm_training(cuda::Stream&, const BatchNormTraining& o);

/// The gradient by the library that left `kept`. dx, d_gamma and d_beta, and behind a ReLU the gradient of a residual
/// whether there is one or not, are written and are no operands.
void batch_norm_library_grad(cuda::Stream&, const LibraryNorm& kept, const Tensor& x, const Tensor& dy,
                             const Tensor& gamma, const Tensor& dx, const Tensor& d_residual, const Tensor& d_gamma,
                             const Tensor& d_beta);

/// What the own gradient needs, from a library's mean and 1 / sqrt(variance + eps), f32 [C], of `values` a channel.
void adopt_batch_statistics(cuda::Stream&, const Tensor& mean, const Tensor& inv_std, std::int64_t values,
                            const Tensor& gamma, const Tensor& beta, const BatchNormOptions& options,
                            const Tensor& running_mean, const Tensor& running_var, const Tensor& coefficients,
                            const Tensor& rstd);
/// `mask` as batch_norm writes it, from its result.
void relu_mask(cuda::Stream&, const Tensor& y, const Tensor& mask);

}  // namespace hearth::kernels
