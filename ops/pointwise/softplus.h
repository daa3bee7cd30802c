// SPDX-License-Identifier: Apache-2.0
// Logarithms of 1 + e^x that keep their precision, as plain arithmetic that vectorises.
#pragma once

#include <cmath>

#include "core/cpu/vector_math.h"

namespace hearth::cpu::math {

HEARTH_ALWAYS_INLINE double log1p(double x) { return std::log1p(x); }

/// log(1 + x) for x in [0, 1]. The rounding of 1 + x is divided out again (Kahan; Higham, "Accuracy and Stability of
/// Numerical Algorithms", 1.14.1).
HEARTH_ALWAYS_INLINE float log1p(float x) {
  const float sum = 1.0f + x;
  const float rounded = sum - 1.0f;
  return rounded == 0.0f ? x : log(sum) * (x / rounded);
}

/// log(1 + e^x) without overflow: max(x, 0) + log(1 + e^-|x|).
template <class A>
HEARTH_ALWAYS_INLINE A softplus(A x) {
  const A tail = log1p(exp(x > A(0) ? -x : x));
  return x > A(0) ? x + tail : tail;
}

/// x^p for x >= 0: 1 for p = 0, 0 for x = 0 and p > 0. f64 as the standard library, f32 within 16 ULP for results in
/// [1e-6, 1e6].
HEARTH_ALWAYS_INLINE double power(double x, double p) { return std::pow(x, p); }
HEARTH_ALWAYS_INLINE float power(float x, float p) {
  return p == 0.0f ? 1.0f : (x == 0.0f ? (p > 0.0f ? 0.0f : std::numeric_limits<float>::infinity()) : exp(p * log(x)));
}

}  // namespace hearth::cpu::math
