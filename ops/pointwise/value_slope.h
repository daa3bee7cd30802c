// SPDX-License-Identifier: Apache-2.0
// From a function to its functor; and a functor's value, and its slope times the arriving gradient, as what elementwise
// kernels are called with.
#pragma once

#include "core/cpu/vector_math.h"
#include "ops/pointwise/functors.h"
#include "ops/pointwise/pointwise.h"

namespace hearth::kernels {

/// f(functor, name of the function, name of its gradient).
template <class Visit>
void visit_function(Pointwise function, Visit&& visit) {
  switch (function) {
#define HEARTH_VISIT_POINTWISE(name, domain) \
  case Pointwise::name:                      \
    return visit(functors::name{}, #name, #name "_grad");
    HEARTH_POINTWISE(HEARTH_VISIT_POINTWISE)
#undef HEARTH_VISIT_POINTWISE
  }
}

template <class F>
struct Value {
  template <class A>
  HEARTH_ALWAYS_INLINE A operator()(A x) const {
    return F::value(x);
  }
};

/// `kept` is the argument or the result, as the functor says.
template <class F>
struct Slope {
  template <class A>
  HEARTH_ALWAYS_INLINE A operator()(A kept, A dy) const {
    return dy * F::slope(kept);
  }
};

}  // namespace hearth::kernels
