// SPDX-License-Identifier: Apache-2.0
// How points and anchors get their boxes, as plain arithmetic, the same on both devices. P is float or double.
#pragma once

#include <cmath>
#include <cstdint>

#include "core/cpu/vector_math.h"

namespace hearth {

/// What assign_points() and assign_anchors() say of a point, or an anchor, without a box.
inline constexpr std::int64_t background_point = -1;
/// What they say of those that count neither as background nor as a box: in ignored boxes alone, or hardly a box.
inline constexpr std::int64_t ignored_point = -2;

/// What a box's best anchors get where it overlaps them by too little to get them anyway.
enum class BestAnchors : std::uint8_t {
  none,
  first,  ///< the best anchor, the first of equals, gets the box: SSD's matcher. Where boxes share it, the last of
          ///< them.
  each,   ///< each of the equally best anchors gets the box that it overlaps most: RetinaNet's matcher
};

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

/// What two boxes share, and their intersection over union; 0 for boxes without area. As box_iou().
template <class P>
struct SharedArea {
  P shared, overlap;
  /// product(x, y) is their rounded product, never fused with an addition, as torchvision's.
  template <class Product>
  HEARTH_ALWAYS_INLINE SharedArea(const P* a, const P* b, const Product& product) {
    const P w = (a[2] < b[2] ? a[2] : b[2]) - (a[0] > b[0] ? a[0] : b[0]);
    const P h = (a[3] < b[3] ? a[3] : b[3]) - (a[1] > b[1] ? a[1] : b[1]);
    shared = w > 0 && h > 0 ? product(w, h) : P(0);
    const P joined = product(a[2] - a[0], a[3] - a[1]) + product(b[2] - b[0], b[3] - b[1]) - shared;
    overlap = shared > 0 ? shared / joined : P(0);
  }
};

/// The anchor that a box overlaps most, the first of equals.
template <class P>
struct BestAnchor {
  P overlap;
  std::int64_t index;
};

template <class P>
struct AnchorBounds {
  P foreground, background;
  BestAnchors best;
};

/// The box of boxes [begin, end) that anchor `index` is to predict. `best` has each box's best anchor.
template <class P, class Product>
HEARTH_ALWAYS_INLINE std::int64_t box_of_anchor(const P* anchor, std::int64_t index, const AnchorBounds<P>& bounds,
                                                const P* boxes, const bool* ignored, const BestAnchor<P>* best,
                                                std::int64_t begin, std::int64_t end, const Product& product) {
  P most = -1;
  std::int64_t box = background_point, taker = background_point;
  bool is_best = false, is_ignored = false;
  for (std::int64_t i = begin; i < end; ++i) {
    const SharedArea<P> area(boxes + i * 4, anchor, product);
    if (ignored != nullptr && ignored[i]) {
      const P whole = product(anchor[2] - anchor[0], anchor[3] - anchor[1]);
      is_ignored |= area.shared > 0 && area.shared >= bounds.foreground * whole;
      continue;
    }
    if (area.overlap > most) most = area.overlap, box = i;
    if (bounds.best == BestAnchors::none || !(area.overlap > 0)) continue;
    if (best[i].index == index) taker = i;
    is_best |= area.overlap == best[i].overlap;
  }
  if (bounds.best == BestAnchors::first && taker >= 0) return taker;
  if (box >= 0 && (most >= bounds.foreground || (bounds.best == BestAnchors::each && is_best))) return box;
  return is_ignored || (box >= 0 && most >= bounds.background) ? ignored_point : background_point;
}

}  // namespace kernels
}  // namespace hearth
