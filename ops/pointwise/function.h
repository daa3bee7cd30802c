// SPDX-License-Identifier: Apache-2.0
// The pointwise functions by name, without tensors: what their kernels need.
#pragma once

#include "ops/pointwise/parametric_table.h"
#include "ops/pointwise/table.h"

namespace hearth::kernels {

enum class Pointwise {
#define HEARTH_LIST_POINTWISE(name, ...) name,
  HEARTH_POINTWISE(HEARTH_LIST_POINTWISE) HEARTH_PARAMETRIC(HEARTH_LIST_POINTWISE)
#undef HEARTH_LIST_POINTWISE
};

}  // namespace hearth::kernels
