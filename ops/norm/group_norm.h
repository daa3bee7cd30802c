// SPDX-License-Identifier: Apache-2.0
// Normalisation over groups of channels of each image.
#pragma once

#include <cstdint>

#include "core/cpu/stream.h"
#include "core/cuda/stream.h"
#include "core/half.h"
#include "core/tensor.h"

namespace hearth {

/// y = (x - mean) / sqrt(variance + eps) * gamma + beta, mean and biased variance of each group of neighbouring
/// channels over all pixels of one image (Wu and He, 2018). With groups = C, and gamma and beta of ones and zeros where
/// there are none, it is instance normalisation.
///
/// x [N, ..., C], any floating type; y has its shape and type. `groups` divides C. gamma and beta are [C], f64 for f64
/// x, else f32, also for x of low precision. Statistics in f32 or wider, the deviations taken from the group's own
/// mean. N, C or the number of pixels may be 0. UsageError, ShapeError or DTypeError for arguments that do not fit.
HEARTH_API Tensor group_norm(const Tensor& x, const Tensor& gamma, const Tensor& beta, std::int64_t groups,
                             double eps = 1e-5);

namespace kernels {

/// x [images, pixels, groups * channels], contiguous and not empty.
struct GroupedImages {
  std::int64_t images, pixels, groups, channels;

  HEARTH_HD std::int64_t width() const { return groups * channels; }
};

/// `mean` and `rstd`, [images, groups] in the type of gamma, receive the statistics.
struct GroupNormalized {
  const Tensor &gamma, &beta;
  double eps;
  const Tensor &y, &mean, &rstd;
};
void group_norm(cpu::Stream&, const GroupedImages& s, const Tensor& x, const GroupNormalized& o);
void group_norm(cuda::Stream&, const GroupedImages& s, const Tensor& x, const GroupNormalized& o);

/// dx, which may be dy; `d_gamma` and `d_beta`, [C] in the type of gamma, and dx may each be absent.
struct GroupNormGradient {
  const Tensor &dy, &gamma, &mean, &rstd, &dx, &d_gamma, &d_beta;
};
void group_norm_grad(cpu::Stream&, const GroupedImages& s, const Tensor& x, const GroupNormGradient& g);
void group_norm_grad(cuda::Stream&, const GroupedImages& s, const Tensor& x, const GroupNormGradient& g);

}  // namespace kernels
}  // namespace hearth
