// SPDX-License-Identifier: Apache-2.0
// From an elementwise loss to its functor.
#pragma once

#include "ops/loss/elementwise_functors.h"
#include "ops/loss/elementwise_table.h"

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

}  // namespace hearth::kernels
