// SPDX-License-Identifier: Apache-2.0
// From a function with numbers to its functor.
#pragma once

#include "ops/pointwise/parametric.h"
#include "ops/pointwise/parametric_functors.h"

namespace hearth::kernels {

/// f(functor, name of the function, name of its gradient).
template <class Visit>
void visit_parametric(Parametric function, Visit&& visit) {
  switch (function) {
#define HEARTH_VISIT_PARAMETRIC(name) \
  case Parametric::name:              \
    return visit(functors::name{}, #name, #name "_grad");
    HEARTH_PARAMETRIC(HEARTH_VISIT_PARAMETRIC)
#undef HEARTH_VISIT_PARAMETRIC
  }
}

}  // namespace hearth::kernels
