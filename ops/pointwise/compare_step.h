// SPDX-License-Identifier: Apache-2.0
// The arithmetic of comparisons, and operands as kernels see them.
#pragma once

#include <cstdint>
#include <type_traits>

#include "core/cpu/vector_math.h"
#include "core/half.h"
#include "ops/pointwise/compare.h"

namespace hearth::kernels {

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

/// Elements in memory, or one number where `first` is null. A is the type it is read in.
template <class T, class A>
struct OperandOf {
  const T* first;
  A number;

  explicit OperandOf(const Operand& operand)
      : first(operand.tensor.defined() ? operand.tensor.data<T>() : nullptr), number(rounded(operand.number)) {}
  HEARTH_ALWAYS_INLINE A at(std::int64_t offset) const {
    return first == nullptr ? number : static_cast<A>(first[offset]);
  }

 private:
  static A rounded(double value) {
    if constexpr (sizeof(acc_t<A>) != sizeof(A))
      return A(static_cast<acc_t<A>>(value));
    else
      return static_cast<A>(value);
  }
};

}  // namespace hearth::kernels
