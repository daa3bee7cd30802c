// SPDX-License-Identifier: Apache-2.0
// GELU by erf as 16-bit results need it, of two instructions for special functions and a dozen others. For kernel
// sources only.
#pragma once

#include "ops/mma.h"

namespace hearth::kernels::activations {

/// Values within 0.006, and slopes within 0.01 of a step of bf16; slopes of f16 within 0.01 of one, but for those
/// around their zero at -0.75, which are right to 2e-7.
struct GeluRounded {
  __device__ __forceinline__ static float value(float x) {
    const float beyond = falling(x) * ratio(std::abs(x));
    return x * (x < 0.0f ? beyond : 1.0f - beyond);
  }
  // The slopes at x and -x add up to 1.
  __device__ __forceinline__ static float slope(float x) {
    // Further out the density is 0, which must not meet infinity.
    const float z = std::fmin(std::abs(x), 16.0f);
    const float below = falling(x) * (ratio(z) - 0.398942280f * z);
    return x < 0.0f ? below : 1.0f - below;
  }

 private:
  /// e^(-x^2 / 2)
  __device__ __forceinline__ static float falling(float x) { return cuda::exp2_rounded(-0.721347520f * x * x); }

  /// The share of a normal distribution beyond z, over falling(z): within 3e-6 of it. A fit, minimax by what results
  /// round to; the form is that of Abramowitz and Stegun, 7.1.26.
  __device__ __forceinline__ static float ratio(float z) {
    const float t = cuda::reciprocal_rounded(0.3f * z + 1.0f);
    float p = -0.0811382607f;
    p = p * t + 0.228029087f;
    p = p * t - 0.0304330382f;
    p = p * t + 0.151313990f;
    p = p * t + 0.111997880f;
    p = p * t + 0.120230779f;
    return p * t;
  }
};

}  // namespace hearth::kernels::activations
