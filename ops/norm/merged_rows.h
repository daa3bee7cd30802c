// SPDX-License-Identifier: Apache-2.0
// Where the four neighbours lie that make a row of merge_layer_norm, on every device.
#pragma once

#include "core/cpu/vector_math.h"
#include "core/tensor.h"

namespace hearth::kernels {

/// Rows of 4 * channels columns, neighbour by neighbour: itself, below, at the right, below at the right.
struct MergedRows {
  std::int64_t height, width, channels;

  explicit MergedRows(const Tensor& x) : height(x.dim(1)), width(x.dim(2)), channels(x.dim(3)) {}

  /// Where the first neighbour of a row begins, and which others there are.
  struct Corner {
    std::int64_t at;
    bool below, right;
  };
  HEARTH_ALWAYS_INLINE Corner corner(std::int64_t row) const {
    const std::int64_t across = (width + 1) / 2, down = (height + 1) / 2;
    const std::int64_t line = row / across, column = 2 * (row - line * across);
    const std::int64_t sample = line / down, upper = 2 * (line - sample * down);
    return {((sample * height + upper) * width + column) * channels, upper + 1 < height, column + 1 < width};
  }

  /// Where a column of a row lies; `exists` is false where an odd side has no such neighbour.
  struct Spot {
    std::int64_t at;
    bool exists;
  };
  HEARTH_ALWAYS_INLINE Spot spot(const Corner& corner, std::int64_t c) const {
    const bool right = c >= 2 * channels;
    if (right) c -= 2 * channels;
    const bool below = c >= channels;
    if (below) c -= channels;
    return {corner.at + ((below ? width : 0) + (right ? 1 : 0)) * channels + c,
            (corner.right || !right) && (corner.below || !below)};
  }
};

}  // namespace hearth::kernels
