// SPDX-License-Identifier: Apache-2.0
// Products as torchvision rounds them.
#pragma once

#include "core/cuda/kernel.h"

namespace hearth::kernels {

/// x y, rounded, and never fused with an addition.
struct RoundedProduct {
  __device__ __forceinline__ float operator()(float x, float y) const { return __fmul_rn(x, y); }
  __device__ __forceinline__ double operator()(double x, double y) const { return __dmul_rn(x, y); }
};

}  // namespace hearth::kernels
