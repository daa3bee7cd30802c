// SPDX-License-Identifier: Apache-2.0
#include "ops/pointwise/walk.h"

namespace hearth::kernels {

Walk walk_over(const Shape& shape, const std::array<Tensor, Walk::operands>& operands) {
  Walk walk;
  for (int axis = 0; axis < shape.rank(); ++axis) {
    const std::int64_t extent = shape[axis];
    if (extent == 1) continue;
    std::array<std::int64_t, Walk::operands> strides{};
    for (std::size_t k = 0; k < operands.size(); ++k) {
      if (!operands[k].defined()) continue;
      const int operand_axis = axis - (shape.rank() - operands[k].rank());
      if (operand_axis >= 0 && operands[k].shape()[operand_axis] != 1)
        strides[k] = operands[k].strides()[static_cast<std::size_t>(operand_axis)];
    }
    bool merges = walk.rank > 0;
    for (std::size_t k = 0; merges && k < strides.size(); ++k)
      merges = walk.strides[k][walk.rank - 1] == strides[k] * extent;
    if (!merges) walk.extents[walk.rank++] = 1;
    walk.extents[walk.rank - 1] *= extent;
    for (std::size_t k = 0; k < strides.size(); ++k) walk.strides[k][walk.rank - 1] = strides[k];
  }
  if (walk.rank == 0) walk.extents[walk.rank++] = 1;
  return walk;
}

}  // namespace hearth::kernels
