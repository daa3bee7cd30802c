// SPDX-License-Identifier: Apache-2.0
// The comparisons by name and as functors, without tensors: what their kernels need.
#pragma once

#include "core/cpu/vector_math.h"
#include "ops/pointwise/compare_table.h"

namespace hearth::kernels {

enum class Comparison {
#define HEARTH_LIST_COMPARISON(name, ...) name,
  HEARTH_COMPARISONS(HEARTH_LIST_COMPARISON)
#undef HEARTH_LIST_COMPARISON
};

/// A functor for each row of the table.
namespace comparisons {
#define HEARTH_COMPARISON_FUNCTOR(name, ...)           \
  struct name {                                        \
    template <class A>                                 \
    HEARTH_ALWAYS_INLINE static bool value(A a, A b) { \
      return __VA_ARGS__;                              \
    }                                                  \
  };
HEARTH_COMPARISONS(HEARTH_COMPARISON_FUNCTOR)
#undef HEARTH_COMPARISON_FUNCTOR
}  // namespace comparisons

/// f(functor, name).
template <class Visit>
void visit_comparison(Comparison comparison, Visit&& visit) {
  switch (comparison) {
#define HEARTH_VISIT_COMPARISON(name, ...) \
  case Comparison::name:                   \
    return visit(comparisons::name{}, #name);
    HEARTH_COMPARISONS(HEARTH_VISIT_COMPARISON)
#undef HEARTH_VISIT_COMPARISON
  }
}

}  // namespace hearth::kernels
