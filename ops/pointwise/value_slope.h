// SPDX-License-Identifier: Apache-2.0
// From a function to its functor; and a functor's value, and its slope times the arriving gradient, with the function's
// numbers, as what elementwise kernels are called with.
#pragma once

#include "core/cpu/vector_math.h"
#include "ops/pointwise/function.h"
#include "ops/pointwise/parametric_functors.h"

namespace hearth::kernels {

/// f(functor, name of the function, name of its gradient).
template <class Visit>
void visit_function(Pointwise function, Visit&& visit) {
  switch (function) {
#define HEARTH_VISIT_POINTWISE(name, ...) \
  case Pointwise::name:                   \
    return visit(functors::name{}, #name, #name "_grad");
    HEARTH_POINTWISE(HEARTH_VISIT_POINTWISE)
    HEARTH_PARAMETRIC(HEARTH_VISIT_POINTWISE)
#undef HEARTH_VISIT_POINTWISE
  }
}

template <class F, class A>
struct Value {
  A a, b;
  HEARTH_ALWAYS_INLINE A operator()(A x) const {
    if constexpr (requires { F::value(x, a, b); })
      return F::value(x, a, b);
    else
      return F::value(x);
  }
};

/// `kept` is the argument or the result, as the functor says.
template <class F, class A>
struct Slope {
  A a, b;
  HEARTH_ALWAYS_INLINE A operator()(A kept, A dy) const {
    if constexpr (requires { F::slope(kept, a, b); })
      return dy * F::slope(kept, a, b);
    else
      return dy * F::slope(kept);
  }
};

}  // namespace hearth::kernels
