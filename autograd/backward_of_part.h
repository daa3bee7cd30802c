// SPDX-License-Identifier: Apache-2.0
// The backward pass of what recompute() ran again, within another backward pass.
#pragma once

#include "core/tensor.h"

namespace hearth::detail {

/// backward(y, dy), but that leaves do not count as finished: the pass around it knows what else they get.
void backward_of_part(const Tensor& y, const Tensor& dy);

}  // namespace hearth::detail
