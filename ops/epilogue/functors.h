// SPDX-License-Identifier: Apache-2.0
// The activations as plain arithmetic: value from what goes in, slope from the result for ReLU and from what went in
// otherwise. A is float or double.
#pragma once

#include "hearth/core/cpu/vector_math.h"
#include "hearth/core/error.h"
#include "hearth/ops/activation.h"

namespace hearth::kernels::activations {

struct NoActivation {
  template <class A>
  HEARTH_ALWAYS_INLINE static A value(A x) {
    return x;
  }
  template <class A>
  HEARTH_ALWAYS_INLINE static A slope(A) {
    return A(1);
  }
};

struct Relu {
  // The comparison is false for not-a-number, which so passes through.
  template <class A>
  HEARTH_ALWAYS_INLINE static A value(A x) {
    return x < A(0) ? A(0) : x;
  }
  template <class A>
  HEARTH_ALWAYS_INLINE static A slope(A y) {
    return y > A(0) ? A(1) : A(0);
  }
};

struct Gelu {
  template <class A>
  HEARTH_ALWAYS_INLINE static A value(A x) {
    return A(0.5) * x * (A(1) + cpu::math::erf(x * A(0.70710678118654752440)));
  }
  template <class A>
  HEARTH_ALWAYS_INLINE static A slope(A x) {
    const A phi = A(0.39894228040143267794) * cpu::math::exp(A(-0.5) * x * x);
    // Far out the density is 0, and infinity times 0 would not be.
    const A tail = phi == A(0) ? A(0) : x * phi;
    return A(0.5) * (A(1) + cpu::math::erf(x * A(0.70710678118654752440))) + tail;
  }
};

struct GeluTanh {
  static constexpr double scale = 0.79788456080286535588;
  static constexpr double cubic = 0.044715;
  template <class A>
  HEARTH_ALWAYS_INLINE static A value(A x) {
    return A(0.5) * x * (A(1) + cpu::math::tanh(A(scale) * (x + A(cubic) * x * x * x)));
  }
  template <class A>
  HEARTH_ALWAYS_INLINE static A slope(A x) {
    const A t = cpu::math::tanh(A(scale) * (x + A(cubic) * x * x * x));
    const A sech = A(1) - t * t;
    const A inner = A(scale) * (A(1) + A(3 * cubic) * x * x);
    const A tail = sech == A(0) ? A(0) : A(0.5) * x * sech * inner;
    return A(0.5) * (A(1) + t) + tail;
  }
};

struct Silu {
  template <class A>
  HEARTH_ALWAYS_INLINE static A value(A x) {
    return x * cpu::math::sigmoid(x);
  }
  template <class A>
  HEARTH_ALWAYS_INLINE static A slope(A x) {
    const A s = cpu::math::sigmoid(x);
    const A rest = A(1) - s;
    const A tail = s == A(0) ? A(0) : x * s * rest;
    return s + tail;
  }
};

/// f(functor) for the activation's functor.
template <class F>
void visit_activation(Activation activation, F&& f) {
  switch (activation) {
    case Activation::none:
      return f(NoActivation{});
    case Activation::relu:
      return f(Relu{});
    case Activation::gelu:
      return f(Gelu{});
    case Activation::gelu_tanh:
      return f(GeluTanh{});
    case Activation::silu:
      return f(Silu{});
  }
  throw UsageError(join_text("activation: value ", static_cast<int>(activation), " is not one of the enumeration"));
}

}  // namespace hearth::kernels::activations
