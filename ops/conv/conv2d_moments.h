// SPDX-License-Identifier: Apache-2.0
// conv2d with the statistics of its result, for the batch normalisation that follows. Internal; models use
// nn::ConvNorm.
#pragma once

#include "ops/conv/conv2d.h"
#include "ops/conv/problem.h"
#include "ops/norm/channel_moments.h"

namespace hearth::detail {

/// All sizes of the problem, or ShapeError. b may be undefined.
ConvShape conv2d_shape(const Shape& x, const Shape& w, const Tensor& b, const Conv2dOptions& options);

/// conv2d(). `moments`, unless null, becomes the moments of y if the kernel that runs can take them in passing; else it
/// is cleared.
Tensor conv2d(const Tensor& x, const Tensor& w, const Tensor& b, const Conv2dOptions& options, ChannelMoments* moments);

}  // namespace hearth::detail
