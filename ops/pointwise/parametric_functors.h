// SPDX-License-Identifier: Apache-2.0
// The functions of parametric_table.h as plain arithmetic: `value`, and its derivative `slope`, both from x and the
// function's numbers. T is float or double.
#pragma once

#include "ops/pointwise/functors.h"
#include "ops/pointwise/softplus.h"

namespace hearth::functors {

struct leaky_relu : From<Keeps::x> {
  template <class T>
  HEARTH_ALWAYS_INLINE static T value(T x, T a, T) {
    return x > T(0) ? x : a * x;
  }
  template <class T>
  HEARTH_ALWAYS_INLINE static T slope(T x, T a, T) {
    return x > T(0) ? T(1) : a;
  }
};

struct elu : From<Keeps::x> {
  template <class T>
  HEARTH_ALWAYS_INLINE static T value(T x, T a, T) {
    return x > T(0) ? x : a * cpu::math::expm1(x);
  }
  template <class T>
  HEARTH_ALWAYS_INLINE static T slope(T x, T a, T) {
    return x > T(0) ? T(1) : a * cpu::math::exp(x);
  }
};

struct softplus : From<Keeps::x> {
  template <class T>
  HEARTH_ALWAYS_INLINE static T value(T x, T a, T) {
    return cpu::math::softplus(a * x) / a;
  }
  template <class T>
  HEARTH_ALWAYS_INLINE static T slope(T x, T a, T) {
    return cpu::math::sigmoid(a * x);
  }
};

struct clamp : From<Keeps::x> {
  // In this form NaN stays what it is.
  template <class T>
  HEARTH_ALWAYS_INLINE static T value(T x, T a, T b) {
    const T raised = x < a ? a : x;
    return raised > b ? b : raised;
  }
  template <class T>
  HEARTH_ALWAYS_INLINE static T slope(T x, T a, T b) {
    return x < a || x > b ? T(0) : T(1);
  }
};

}  // namespace hearth::functors
