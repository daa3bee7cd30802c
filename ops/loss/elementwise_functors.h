// SPDX-License-Identifier: Apache-2.0
// The elementwise losses as plain arithmetic: `value`, and `slope`, its derivative with respect to x. A is float or
// double. `q` is the weight of positive targets, `a` and `b` are the loss's own numbers.
#pragma once

#include <cmath>

#include "core/cpu/vector_math.h"
#include "ops/pointwise/softplus.h"

namespace hearth::loss_functors {

/// Whether the derivative with respect to the target is -slope; if not, targets get no gradient.
template <bool difference>
struct Of {
  static constexpr bool of_difference = difference;
};

struct mse : Of<true> {
  template <class A>
  HEARTH_ALWAYS_INLINE static A value(A x, A t, A, A, A) {
    return (x - t) * (x - t);
  }
  template <class A>
  HEARTH_ALWAYS_INLINE static A slope(A x, A t, A, A, A) {
    return A(2) * (x - t);
  }
};

struct l1_loss : Of<true> {
  template <class A>
  HEARTH_ALWAYS_INLINE static A value(A x, A t, A, A, A) {
    return std::abs(x - t);
  }
  template <class A>
  HEARTH_ALWAYS_INLINE static A slope(A x, A t, A, A, A) {
    return x > t ? A(1) : (x < t ? A(-1) : A(0));
  }
};

// a is beta > 0.
struct smooth_l1_loss : Of<true> {
  template <class A>
  HEARTH_ALWAYS_INLINE static A value(A x, A t, A, A a, A) {
    const A d = std::abs(x - t);
    return d < a ? A(0.5) * d * d / a : d - A(0.5) * a;
  }
  template <class A>
  HEARTH_ALWAYS_INLINE static A slope(A x, A t, A, A a, A) {
    const A d = x - t;
    return d >= a ? A(1) : (d <= -a ? A(-1) : d / a);
  }
};

// a is delta > 0.
struct huber_loss : Of<true> {
  template <class A>
  HEARTH_ALWAYS_INLINE static A value(A x, A t, A, A a, A) {
    const A d = std::abs(x - t);
    return d < a ? A(0.5) * d * d : a * (d - A(0.5) * a);
  }
  template <class A>
  HEARTH_ALWAYS_INLINE static A slope(A x, A t, A, A a, A) {
    const A d = x - t;
    return d >= a ? a : (d <= -a ? -a : d);
  }
};

struct bce_with_logits : Of<false> {
  // -log sigmoid(x) is softplus(-x), and -log(1 - sigmoid(x)) is x + softplus(-x).
  template <class A>
  HEARTH_ALWAYS_INLINE static A value(A x, A t, A q, A, A) {
    return (A(1) - t) * x + (A(1) + (q - A(1)) * t) * cpu::math::softplus(-x);
  }
  template <class A>
  HEARTH_ALWAYS_INLINE static A slope(A x, A t, A q, A, A) {
    return (A(1) - t) * cpu::math::sigmoid(x) - q * t * cpu::math::sigmoid(-x);
  }
};

// a is alpha, negative for none, b is gamma >= 0.
struct focal_loss : Of<false> {
  /// 1 - the probability of the target: s (1 - t) + (1 - s) t.
  template <class A>
  HEARTH_ALWAYS_INLINE static A miss(A s, A rest, A t) {
    return s * (A(1) - t) + rest * t;
  }
  template <class A>
  HEARTH_ALWAYS_INLINE static A weight(A t, A a) {
    return a < A(0) ? A(1) : a * t + (A(1) - a) * (A(1) - t);
  }
  template <class A>
  HEARTH_ALWAYS_INLINE static A value(A x, A t, A q, A a, A b) {
    const A m = miss(cpu::math::sigmoid(x), cpu::math::sigmoid(-x), t);
    return weight(t, a) * cpu::math::power(m, b) * bce_with_logits::value(x, t, q, a, b);
  }
  template <class A>
  HEARTH_ALWAYS_INLINE static A slope(A x, A t, A q, A a, A b) {
    const A s = cpu::math::sigmoid(x), rest = cpu::math::sigmoid(-x), m = miss(s, rest, t);
    const A slope_of_m = s * rest * (A(1) - A(2) * t);
    const A factor = cpu::math::power(m, b);
    // b m^(b - 1) dm/dx; where dm/dx is 0 the power may be infinite.
    const A slope_of_factor = slope_of_m == A(0) ? A(0) : b * cpu::math::power(m, b - A(1)) * slope_of_m;
    const A cross_entropy = bce_with_logits::value(x, t, q, a, b);
    return weight(t, a) * (slope_of_factor * cross_entropy + factor * bce_with_logits::slope(x, t, q, a, b));
  }
};

}  // namespace hearth::loss_functors
