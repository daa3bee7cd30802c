// SPDX-License-Identifier: Apache-2.0
// FCOS's rule as plain arithmetic, the same on both devices. P is float or double.
#pragma once

#include <cmath>
#include <cstdint>

#include "core/cpu/vector_math.h"

namespace hearth {

/// What assign_points() says of a point without a box.
inline constexpr std::int64_t background_point = -1;
/// What it says of a point that is in ignored boxes alone.
inline constexpr std::int64_t ignored_point = -2;

namespace kernels {

/// The smallest of boxes [begin, end) that qualifies for the point of an anchor.
template <class P>
HEARTH_ALWAYS_INLINE std::int64_t box_of_point(const P* anchor, const P* reach, P radius, const P* boxes,
                                               const bool* ignored, std::int64_t begin, std::int64_t end) {
  const P x = (anchor[0] + anchor[2]) / 2, y = (anchor[1] + anchor[3]) / 2;
  const P far_x = radius * (anchor[2] - anchor[0]), far_y = radius * (anchor[3] - anchor[1]);
  std::int64_t best = background_point;
  P min_area = 0;
  for (std::int64_t i = begin; i < end; ++i) {
    const P* const box = boxes + i * 4;
    const P left = x - box[0], up = y - box[1], right = box[2] - x, down = box[3] - y;
    if (!(left > 0 && up > 0 && right > 0 && down > 0)) continue;
    if (ignored != nullptr && ignored[i]) {
      if (best == background_point) best = ignored_point;
      continue;
    }
    const P across = left > right ? left : right, along = up > down ? up : down;
    const P most = across > along ? across : along;
    if (!(most > reach[0] && most < reach[1])) continue;
    if (!(std::abs(x - (box[0] + box[2]) / 2) < far_x && std::abs(y - (box[1] + box[3]) / 2) < far_y)) continue;
    const P area = (box[2] - box[0]) * (box[3] - box[1]);
    if (best >= 0 && area >= min_area) continue;
    best = i;
    min_area = area;
  }
  return best;
}

}  // namespace kernels
}  // namespace hearth
