// SPDX-License-Identifier: Apache-2.0
// GELU by erf as 16-bit results need it: a dozen instructions beside one exponential and one reciprocal, which the CPU
// and devices have their own ways for: `falling` is e^(-x^2 / 2), `t` is 1 / divisor(x).
//
// Values are within 0.006, and slopes within 0.01 of a step of bf16; slopes of f16 within 0.01 of one, but for those
// around their zero at -0.75, which are right to 2e-7.
#pragma once

#include <cmath>

#include "core/cpu/vector_math.h"

namespace hearth::kernels::gelu_rounded {

/// |x|. Further out than 16 the density is 0, which must not meet infinity.
HEARTH_ALWAYS_INLINE float bounded(float x) {
  const float magnitude = std::fabs(x);
  return magnitude > 16.0f ? 16.0f : magnitude;
}

HEARTH_ALWAYS_INLINE float divisor(float x) { return 0.3f * bounded(x) + 1.0f; }

/// The share of a normal distribution beyond |x|, over falling: within 3e-6 of it. A fit, minimax by what results round
/// to; the form is that of Abramowitz and Stegun, 7.1.26.
HEARTH_ALWAYS_INLINE float ratio(float t) {
  float p = -0.0811382607f;
  p = p * t + 0.228029087f;
  p = p * t - 0.0304330382f;
  p = p * t + 0.151313990f;
  p = p * t + 0.111997880f;
  p = p * t + 0.120230779f;
  return p * t;
}

HEARTH_ALWAYS_INLINE float value(float x, float falling, float t) {
  const float beyond = falling * ratio(t);
  return x * (x < 0.0f ? beyond : 1.0f - beyond);
}

// The slopes at x and -x add up to 1.
HEARTH_ALWAYS_INLINE float slope(float x, float falling, float t) {
  const float below = falling * (ratio(t) - 0.398942280f * bounded(x));
  return x < 0.0f ? below : 1.0f - below;
}

}  // namespace hearth::kernels::gelu_rounded
