// SPDX-License-Identifier: Apache-2.0
// The inputs of an elementwise loss as kernels see them, and an element's weights.
#pragma once

#include <cstdint>

#include "core/cpu/vector_math.h"
#include "ops/loss/elementwise.h"

namespace hearth::kernels {

/// The inputs as pointers to T and numbers of the type P that is computed in.
template <class T, class P>
struct ElementLossData {
  const T *x, *target;
  const P *weight, *pos_weight;  ///< null: 1
  std::int64_t weight_period, pos_weight_period;
  P a, b, ignored;

  explicit ElementLossData(const ElementLossInputs& in)
      : x(in.x.data<T>()),
        target(in.target.data<T>()),
        weight(in.weight.defined() ? in.weight.data<P>() : nullptr),
        pos_weight(in.pos_weight.defined() ? in.pos_weight.data<P>() : nullptr),
        weight_period(in.weight.defined() ? in.weight.size() : 1),
        pos_weight_period(in.pos_weight.defined() ? in.pos_weight.size() : 1),
        a(static_cast<P>(in.a)),
        b(static_cast<P>(in.b)),
        ignored(static_cast<P>(in.ignored)) {}

  HEARTH_ALWAYS_INLINE P weight_at(std::int64_t i) const {
    return weight == nullptr ? P(1) : weight[weight_period == 1 ? 0 : i % weight_period];
  }
  HEARTH_ALWAYS_INLINE P pos_weight_at(std::int64_t i) const {
    return pos_weight == nullptr ? P(1) : pos_weight[pos_weight_period == 1 ? 0 : i % pos_weight_period];
  }
};

}  // namespace hearth::kernels
