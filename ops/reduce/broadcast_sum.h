// SPDX-License-Identifier: Apache-2.0
// The gradient side of broadcasting.
#pragma once

#include "core/tensor.h"

namespace hearth {

/// `x` summed over the axes along which a tensor of `shape` was repeated to give x's shape; x itself if there are none.
/// Not recorded. `shape` must broadcast to x's.
Tensor broadcast_sum(Tensor x, const Shape& shape);

}  // namespace hearth
