// SPDX-License-Identifier: Apache-2.0
// conv2d and batch_norm where the one follows the other: the statistics of the convolution's result go with it.
// Internal; models use nn::ConvNorm.
#pragma once

#include "ops/conv/conv2d.h"
#include "ops/conv/problem.h"
#include "ops/norm/batch_norm.h"
#include "ops/norm/channel_moments.h"

namespace hearth::detail {

/// All sizes of the problem, or ShapeError. b may be undefined.
ConvShape conv2d_shape(const Shape& x, const Shape& w, const Tensor& b, const Conv2dOptions& options);

/// conv2d(). `moments`, unless null, becomes the moments of y if the kernel that runs can take them in passing; else it
/// is cleared.
Tensor conv2d(const Tensor& x, const Tensor& w, const Tensor& b, const Conv2dOptions& options, ChannelMoments* moments);

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
