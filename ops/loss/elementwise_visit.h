// SPDX-License-Identifier: Apache-2.0
// From an elementwise loss to its functor, and an element's weights.
#pragma once

#include <cstdint>

#include "ops/loss/elementwise.h"
#include "ops/loss/elementwise_functors.h"

namespace hearth::kernels {

/// f(functor, name of the loss, name of its gradient).
template <class Visit>
void visit_loss(ElementLoss loss, Visit&& visit) {
  switch (loss) {
#define HEARTH_VISIT_LOSS(name) \
  case ElementLoss::name:       \
    return visit(loss_functors::name{}, #name, #name "_grad");
    HEARTH_ELEMENT_LOSSES(HEARTH_VISIT_LOSS)
#undef HEARTH_VISIT_LOSS
  }
}

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
