// SPDX-License-Identifier: Apache-2.0
// batch_norm with the statistics that a convolution took of its result. Internal; models use nn::ConvNorm.
#pragma once

#include "ops/norm/batch_norm.h"
#include "ops/norm/channel_moments.h"

namespace hearth::detail {

/// Throws what batch_norm() does for arguments that do not fit.
void check_batch_norm(const Tensor& x, const Tensor& gamma, const Tensor& beta, const BatchNormOptions& options,
                      const Tensor& running_mean, const Tensor& running_var, const Tensor& residual,
                      const ChannelMoments* moments);

/// batch_norm(). `moments`, where given and not empty, are those of x, which is then not read for them on a device (by
/// the CPU it is). UsageError for those of another tensor.
Tensor batch_norm(const Tensor& x, const Tensor& gamma, const Tensor& beta, const BatchNormOptions& options,
                  const Tensor& running_mean, const Tensor& running_var, const Tensor& residual,
                  const ChannelMoments* moments);

}  // namespace hearth::detail
