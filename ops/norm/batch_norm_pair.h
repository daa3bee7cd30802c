// SPDX-License-Identifier: Apache-2.0
// Two batch normalisations whose results are added, with a ReLU behind the sum: the end of a residual block whose
// shortcut is a convolution with a norm. Internal.
#pragma once

#include <span>

#include "ops/norm/channel_moments.h"

namespace hearth::kernels {

/// One of the two: its input and `coefficients` as ChannelNorm has them.
struct NormedTensor {
  const Tensor &x, &coefficients;
};

/// y = relu(a normalised + b normalised and rounded), and the bits of y > 0 in `mask` (may be absent) as batch_norm()
/// leaves them. What b's norm makes is written nowhere.
void batch_norm_pair(cuda::Stream&, const NormedTensor& a, const NormedTensor& b, const Tensor& y, const Tensor& mask);

/// batch_norm_grad_sums() of both from one reading of dy, the ReLU's gate being `mask`.
void batch_norm_pair_grad_sums(cuda::Stream&, const BatchNormGradient& a, const BatchNormGradient& b,
                               const Tensor& mask, const Tensor& dy);
/// batch_norm_grad() of both, each over its x.
void batch_norm_pair_grad(cuda::Stream&, const BatchNormGradient& a, const BatchNormGradient& b, const Tensor& mask,
                          const Tensor& dy);

}  // namespace hearth::kernels
