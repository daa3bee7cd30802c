// SPDX-License-Identifier: Apache-2.0
// Batch normalisation in training on a device, by the chosen implementation.
#pragma once

#include "hearth/ops/norm/batch_norm.h"

namespace hearth::kernels {

/// The operands of batch_norm_coefficients and batch_norm. All tensors are contiguous.
struct BatchNormTraining {
  const BatchNormOptions& options;
  const Tensor &x, &gamma, &beta, &running_mean, &running_var, &residual;
  const ChannelMoments* moments;                 ///< null where there are none
  const Tensor &coefficients, &rstd, &y, &mask;  ///< written
};

/// Both, for options.training: by the own kernels, or by a library that is pinned.
void batch_norm_training(cuda::Stream&, const BatchNormTraining& o);

/// What the own gradient needs, from a library's mean and 1 / sqrt(variance + eps), f32 [C], of `values` a channel.
void adopt_batch_statistics(cuda::Stream&, const Tensor& mean, const Tensor& inv_std, std::int64_t values,
                            const Tensor& gamma, const Tensor& beta, const BatchNormOptions& options,
                            const Tensor& running_mean, const Tensor& running_var, const Tensor& coefficients,
                            const Tensor& rstd);
/// `mask` as batch_norm writes it, from its result.
void relu_mask(cuda::Stream&, const Tensor& y, const Tensor& mask);

}  // namespace hearth::kernels
