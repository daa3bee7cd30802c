// SPDX-License-Identifier: Apache-2.0
// The functions of the pointwise family as plain arithmetic: `value` and its derivative `slope`, the latter from the
// input or from the result, whichever the op then has to keep. T is float or double.
#pragma once

#include <cmath>

#include "core/cpu/vector_math.h"

namespace hearth::functors {

enum class Keeps { x, y, nothing };

/// What a functor's slope is made from, and whether autocast upcasts its argument.
template <Keeps kept, bool wide = false>
struct From {
  static constexpr Keeps keeps = kept;
  static constexpr bool widens = wide;
};

struct relu : From<Keeps::y> {
  // In this form NaN stays what it is.
  template <class T>
  HEARTH_ALWAYS_INLINE static T value(T x) {
    return x < T(0) ? T(0) : x;
  }
  template <class T>
  HEARTH_ALWAYS_INLINE static T slope(T y) {
    return y <= T(0) ? T(0) : T(1);
  }
};

struct gelu : From<Keeps::x> {
  template <class T>
  HEARTH_ALWAYS_INLINE static T cumulative(T x) {
    return T(0.5) * (T(1) + cpu::math::erf(x * T(0.70710678118654752440)));
  }
  template <class T>
  HEARTH_ALWAYS_INLINE static T value(T x) {
    return x * cumulative(x);
  }
  template <class T>
  HEARTH_ALWAYS_INLINE static T slope(T x) {
    const T density = T(0.39894228040143267794) * cpu::math::exp(T(-0.5) * x * x);
    // Far out the density is 0, and infinity times 0 would not be.
    const T tail = density == T(0) ? T(0) : x * density;
    return cumulative(x) + tail;
  }
};

// x (1 + tanh u) / 2 is x sigmoid(2u), which does not cancel for negative x.
struct gelu_tanh : From<Keeps::x> {
  template <class T>
  HEARTH_ALWAYS_INLINE static T gate(T x) {
    return cpu::math::sigmoid(T(1.59576912160573071176) * x * (T(1) + T(0.044715) * x * x));
  }
  template <class T>
  HEARTH_ALWAYS_INLINE static T value(T x) {
    return x * gate(x);
  }
  template <class T>
  HEARTH_ALWAYS_INLINE static T slope(T x) {
    // Beyond 30 the slope is 0 or 1 in every type; without the bounds x^2 would overflow against a gate of 0.
    T bounded = x > T(30) ? T(30) : x;
    bounded = bounded < T(-30) ? T(-30) : bounded;
    const T s = gate(bounded);
    const T inner = T(1.59576912160573071176) * (T(1) + T(0.134145) * bounded * bounded);
    return s + bounded * s * (T(1) - s) * inner;
  }
};

struct silu : From<Keeps::x> {
  template <class T>
  HEARTH_ALWAYS_INLINE static T value(T x) {
    return x * cpu::math::sigmoid(x);
  }
  template <class T>
  HEARTH_ALWAYS_INLINE static T slope(T x) {
    // Beyond 800 the slope is 0 or 1 in every type; without the bounds infinity would meet 0. Branches would keep loops
    // from vectors.
    T bounded = x > T(800) ? T(800) : x;
    bounded = bounded < T(-800) ? T(-800) : bounded;
    const T s = cpu::math::sigmoid(x);
    return s + bounded * s * (T(1) - s);
  }
};

struct tanh : From<Keeps::y> {
  template <class T>
  HEARTH_ALWAYS_INLINE static T value(T x) {
    return cpu::math::tanh(x);
  }
  template <class T>
  HEARTH_ALWAYS_INLINE static T slope(T y) {
    return T(1) - y * y;
  }
};

struct sigmoid : From<Keeps::y> {
  template <class T>
  HEARTH_ALWAYS_INLINE static T value(T x) {
    return cpu::math::sigmoid(x);
  }
  template <class T>
  HEARTH_ALWAYS_INLINE static T slope(T y) {
    return y * (T(1) - y);
  }
};

struct exp : From<Keeps::y, true> {
  template <class T>
  HEARTH_ALWAYS_INLINE static T value(T x) {
    return cpu::math::exp(x);
  }
  template <class T>
  HEARTH_ALWAYS_INLINE static T slope(T y) {
    return y;
  }
};

struct log : From<Keeps::x, true> {
  template <class T>
  HEARTH_ALWAYS_INLINE static T value(T x) {
    return cpu::math::log(x);
  }
  template <class T>
  HEARTH_ALWAYS_INLINE static T slope(T x) {
    return T(1) / x;
  }
};

struct sqrt : From<Keeps::y> {
  template <class T>
  HEARTH_ALWAYS_INLINE static T value(T x) {
    return std::sqrt(x);
  }
  template <class T>
  HEARTH_ALWAYS_INLINE static T slope(T y) {
    return T(0.5) / y;
  }
};

struct square : From<Keeps::x, true> {
  template <class T>
  HEARTH_ALWAYS_INLINE static T value(T x) {
    return x * x;
  }
  template <class T>
  HEARTH_ALWAYS_INLINE static T slope(T x) {
    return x + x;
  }
};

struct abs : From<Keeps::x> {
  template <class T>
  HEARTH_ALWAYS_INLINE static T value(T x) {
    return std::abs(x);
  }
  template <class T>
  HEARTH_ALWAYS_INLINE static T slope(T x) {
    return x > T(0) ? T(1) : (x < T(0) ? T(-1) : T(0));
  }
};

struct rsqrt : From<Keeps::y, true> {
  template <class T>
  HEARTH_ALWAYS_INLINE static T value(T x) {
    return T(1) / std::sqrt(x);
  }
  template <class T>
  HEARTH_ALWAYS_INLINE static T slope(T y) {
    return T(-0.5) * y * y * y;
  }
};

struct sin : From<Keeps::x> {
  template <class T>
  HEARTH_ALWAYS_INLINE static T value(T x) {
    return std::sin(x);
  }
  template <class T>
  HEARTH_ALWAYS_INLINE static T slope(T x) {
    return std::cos(x);
  }
};

struct cos : From<Keeps::x> {
  template <class T>
  HEARTH_ALWAYS_INLINE static T value(T x) {
    return std::cos(x);
  }
  template <class T>
  HEARTH_ALWAYS_INLINE static T slope(T x) {
    return -std::sin(x);
  }
};

struct erf : From<Keeps::x> {
  template <class T>
  HEARTH_ALWAYS_INLINE static T value(T x) {
    return cpu::math::erf(x);
  }
  template <class T>
  HEARTH_ALWAYS_INLINE static T slope(T x) {
    return T(1.12837916709551257390) * cpu::math::exp(-x * x);
  }
};

struct neg : From<Keeps::nothing> {
  template <class T>
  HEARTH_ALWAYS_INLINE static T value(T x) {
    return -x;
  }
  template <class T>
  HEARTH_ALWAYS_INLINE static T slope(T) {
    return T(-1);
  }
};

}  // namespace hearth::functors
