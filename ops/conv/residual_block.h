// SPDX-License-Identifier: Apache-2.0
// Convolutions with their batch normalisations and a shortcut as one op: the residual block of a ResNet. Internal;
// models use nn::ConvNorm::residual_block.
#pragma once

#include <span>

#include "ops/conv/conv2d.h"
#include "ops/norm/batch_norm.h"

namespace hearth::detail {

/// A convolution without bias, and the norm behind it, in training.
struct BlockLayer {
  Tensor w;
  Conv2dOptions convolution;
  Tensor gamma, beta, running_mean, running_var;
  BatchNormOptions norm;
};

/// Why residual_block() is not for these, or empty: it is for training on a CUDA device, without groups of channels or
/// of ranks, with channels in multiples of 8, and a ReLU behind every norm but the shortcut's. `shortcut` may be null.
std::string why_no_residual_block(const Tensor& x, std::span<const BlockLayer> layers, const BlockLayer* shortcut);
/// The same question where it is a matter of speed: 16-bit images, whose convolutions are native kernels', or
/// cuDNN's with plans that read through a norm.
bool prefers_residual_block(const Tensor& x, std::span<const BlockLayer> layers, const BlockLayer* shortcut);

/// y = relu(norm(conv(... relu(norm(conv(x))))) + shortcut), with the values of the ops one by one; the shortcut is x,
/// or norm(conv(x)) of a 1x1 filter without padding. What the norms inside the block and the shortcut's make is never
/// written: the next convolution, or the last pass, applies it as it reads. Forward is two launches a layer and one.
/// UsageError where there is a reason why not; ShapeError, DTypeError as the ops.
Tensor residual_block(const Tensor& x, std::span<const BlockLayer> layers, const BlockLayer* shortcut = nullptr);

}  // namespace hearth::detail
