// SPDX-License-Identifier: Apache-2.0
// A functor's value, and its slope times the arriving gradient, as what elementwise kernels are called with.
#pragma once

#include "core/cpu/vector_math.h"

namespace hearth::kernels {

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
