// SPDX-License-Identifier: Apache-2.0
// How broadcasting operands are walked: the axes of the result, merged where all operands allow it.
#pragma once

#include <array>
#include <cstdint>

#include "core/tensor.h"

namespace hearth::kernels {

/// Row-major over the result. Strides in elements, 0 where an operand is repeated or absent. At least one axis; axes of
/// extent 1 are dropped.
struct Walk {
  static constexpr int operands = 3;
  int rank = 0;
  std::int64_t extents[Shape::max_rank] = {};
  std::int64_t strides[operands][Shape::max_rank] = {};

  /// Elements of a row: the last merged axis.
  std::int64_t length() const { return extents[rank - 1]; }
};

/// Operands that broadcast to `shape`; absent ones are undefined.
Walk walk_over(const Shape& shape, const std::array<Tensor, Walk::operands>& operands);

/// f(position in the result, offset of each operand, elements) for the rows and parts of rows in [begin, end).
template <class F>
void each_row(const Walk& walk, std::int64_t begin, std::int64_t end, const F& f) {
  const int last = walk.rank - 1;
  const std::int64_t length = walk.length();
  std::int64_t index[Shape::max_rank] = {}, offsets[Walk::operands] = {};
  std::int64_t rest = begin;
  for (int axis = last; axis >= 0; --axis) {
    index[axis] = rest % walk.extents[axis];
    rest /= walk.extents[axis];
    for (int k = 0; k < Walk::operands; ++k) offsets[k] += index[axis] * walk.strides[k][axis];
  }
  for (std::int64_t position = begin; position < end;) {
    const std::int64_t count = length - index[last] < end - position ? length - index[last] : end - position;
    f(position, static_cast<const std::int64_t*>(offsets), count);
    position += count;
    // On to the next row: back to the start of this one, then one step along the axes above.
    for (int k = 0; k < Walk::operands; ++k) offsets[k] -= index[last] * walk.strides[k][last];
    index[last] = 0;
    for (int axis = last - 1; axis >= 0; --axis) {
      for (int k = 0; k < Walk::operands; ++k) offsets[k] += walk.strides[k][axis];
      if (++index[axis] < walk.extents[axis]) break;
      for (int k = 0; k < Walk::operands; ++k) offsets[k] -= walk.extents[axis] * walk.strides[k][axis];
      index[axis] = 0;
    }
  }
}

}  // namespace hearth::kernels
