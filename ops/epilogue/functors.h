// SPDX-License-Identifier: Apache-2.0
// The activations as functors: value from what goes in, slope from the result for ReLU and from what went in otherwise.
#pragma once

#include "core/error.h"
#include "ops/activation.h"
#include "ops/pointwise/functors.h"

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

/// f(functor) for the activation's functor.
template <class F>
void visit_activation(Activation activation, F&& f) {
  switch (activation) {
    case Activation::none:
      return f(NoActivation{});
    case Activation::relu:
      return f(functors::relu{});
    case Activation::gelu:
      return f(functors::gelu{});
    case Activation::gelu_tanh:
      return f(functors::gelu_tanh{});
    case Activation::silu:
      return f(functors::silu{});
  }
  throw UsageError(join_text("activation: value ", static_cast<int>(activation), " is not one of the enumeration"));
}

}  // namespace hearth::kernels::activations
