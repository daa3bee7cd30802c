// SPDX-License-Identifier: Apache-2.0
// How broadcasting operands are walked: the axes of the result, merged where both operands allow it.
#pragma once

#include <cstdint>

#include "core/tensor.h"

namespace hearth::kernels {

/// Row-major over the result; strides in elements, 0 where an operand is repeated. At least one axis.
struct Walk {
  int rank = 0;
  std::int64_t extents[Shape::max_rank] = {};
  std::int64_t strides_a[Shape::max_rank] = {};
  std::int64_t strides_b[Shape::max_rank] = {};
};

/// a and b broadcast to `shape`. Axes of extent 1 are dropped.
Walk walk_over(const Shape& shape, const Tensor& a, const Tensor& b);

}  // namespace hearth::kernels
