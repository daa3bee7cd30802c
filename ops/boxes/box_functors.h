// SPDX-License-Identifier: Apache-2.0
// Functions of boxes as plain arithmetic, the same on both devices. a and b are boxes of four numbers, `n` the
// function's four numbers (BoxNumbers). `value` writes `outputs` numbers; `slope` makes of their gradient dy those of a
// and b. P is float or double.
#pragma once

#include <array>
#include <cmath>
#include <cstdint>

#include "core/cpu/vector_math.h"
#include "ops/boxes/box_table.h"

namespace hearth::box_functors {

/// How many boxes a function takes, how many numbers it gives, and which boxes have a gradient.
template <int boxes_, int outputs_, bool slope_a_, bool slope_b_ = false>
struct Of {
  static constexpr int boxes = boxes_, outputs = outputs_;
  static constexpr bool slope_a = slope_a_, slope_b = slope_b_;
};

template <class P>
HEARTH_ALWAYS_INLINE P smaller(P x, P y) {
  return y < x ? y : x;
}
template <class P>
HEARTH_ALWAYS_INLINE P larger(P x, P y) {
  return x < y ? y : x;
}
/// A function's four numbers in the type of its boxes.
template <class P>
struct NumbersAs {
  P at[4];
  explicit NumbersAs(const std::array<double, 4>& numbers)
      : at{static_cast<P>(numbers[0]), static_cast<P>(numbers[1]), static_cast<P>(numbers[2]),
           static_cast<P>(numbers[3])} {}
};

/// x / y, and 0 where y is 0.
template <class P>
HEARTH_ALWAYS_INLINE P ratio(P x, P y) {
  const P quotient = x / y;  // always computed, so that loops are vectors
  return y != P(0) ? quotient : P(0);
}
/// The part of a gradient that goes to x in min(x, y): equals share it. That in max(x, y) is part_of(y, x).
template <class P>
HEARTH_ALWAYS_INLINE P part_of(P x, P y) {
  return x < y ? P(1) : (x == y ? P(0.5) : P(0));
}

// Each axis is a product with the matrix n: two numbers of a box become two others.
struct convert_boxes : Of<1, 4, true> {
  template <class P>
  HEARTH_ALWAYS_INLINE static void value(const P* a, const P*, const P* n, P* y) {
    for (int axis = 0; axis < 2; ++axis) {
      y[axis] = n[0] * a[axis] + n[1] * a[axis + 2];
      y[axis + 2] = n[2] * a[axis] + n[3] * a[axis + 2];
    }
  }
  template <class P>
  HEARTH_ALWAYS_INLINE static void slope(const P*, const P*, const P* n, const P* dy, P* da, P*) {
    for (int axis = 0; axis < 2; ++axis) {
      da[axis] = n[0] * dy[axis] + n[2] * dy[axis + 2];
      da[axis + 2] = n[1] * dy[axis] + n[3] * dy[axis + 2];
    }
  }
};

struct box_area : Of<1, 1, true> {
  template <class P>
  HEARTH_ALWAYS_INLINE static void value(const P* a, const P*, const P*, P* y) {
    *y = (a[2] - a[0]) * (a[3] - a[1]);
  }
  template <class P>
  HEARTH_ALWAYS_INLINE static void slope(const P* a, const P*, const P*, const P* dy, P* da, P*) {
    da[2] = *dy * (a[3] - a[1]);
    da[3] = *dy * (a[2] - a[0]);
    da[0] = -da[2];
    da[1] = -da[3];
  }
};

// n: width, height.
struct clip_boxes : Of<1, 4, true> {
  template <class P>
  HEARTH_ALWAYS_INLINE static void value(const P* a, const P*, const P* n, P* y) {
    for (int i = 0; i < 4; ++i) y[i] = a[i] < P(0) ? P(0) : (a[i] > n[i % 2] ? n[i % 2] : a[i]);
  }
  template <class P>
  HEARTH_ALWAYS_INLINE static void slope(const P* a, const P*, const P* n, const P* dy, P* da, P*) {
    for (int i = 0; i < 4; ++i) da[i] = a[i] >= P(0) && a[i] <= n[i % 2] ? dy[i] : P(0);
  }
};

enum class Overlap { iou, giou, diou, ciou };

// n: what is added to areas that are divided by, the same for squared lengths, then offset and factor of the result.
// As torchvision's losses, so that alpha of ciou gets no gradient.
template <Overlap kind>
struct OverlapOf : Of<2, 1, true, true> {
  static constexpr bool has_distance = kind == Overlap::diou || kind == Overlap::ciou;

  /// All that value and slope are made of.
  template <class P>
  struct Parts {
    P aw, ah, bw, bh;      // sides
    P w, h;                // of the intersection; below 0: none
    P shared, joined;      // areas: intersection; union, enlarged
    P cw, ch, area;        // sides of the box around both; its area, enlarged
    P px, py, far, reach;  // between the centres; squared distance; squared diagonal of the box around, enlarged
    P turn, v, alpha;      // of the aspect ratios

    HEARTH_ALWAYS_INLINE Parts(const P* a, const P* b, const P* n) {
      aw = a[2] - a[0], ah = a[3] - a[1], bw = b[2] - b[0], bh = b[3] - b[1];
      w = smaller(a[2], b[2]) - larger(a[0], b[0]);
      h = smaller(a[3], b[3]) - larger(a[1], b[1]);
      shared = w > P(0) && h > P(0) ? w * h : P(0);
      joined = aw * ah + bw * bh - shared + n[0];
      if constexpr (kind != Overlap::iou) {
        cw = larger(a[2], b[2]) - smaller(a[0], b[0]);
        ch = larger(a[3], b[3]) - smaller(a[1], b[1]);
      }
      if constexpr (kind == Overlap::giou) area = cw * ch + n[0];
      if constexpr (has_distance) {
        px = (a[0] + a[2] - b[0] - b[2]) / 2;
        py = (a[1] + a[3] - b[1] - b[3]) / 2;
        far = px * px + py * py;
        reach = cw * cw + ch * ch + n[1];
      }
      if constexpr (kind == Overlap::ciou) {
        turn = angle(bw, bh) - angle(aw, ah);
        v = scale<P> * turn * turn;
        alpha = ratio(v, P(1) - ratio(shared, joined) + v + n[1]);
      }
    }
  };

  template <class P>
  HEARTH_ALWAYS_INLINE static void value(const P* a, const P* b, const P* n, P* y) {
    const Parts<P> of(a, b, n);
    P result = ratio(of.shared, of.joined);
    if constexpr (kind == Overlap::giou) result -= ratio(of.area - of.joined, of.area);
    if constexpr (has_distance) result -= ratio(of.far, of.reach);
    if constexpr (kind == Overlap::ciou) result -= of.alpha * of.v;
    *y = n[2] + n[3] * result;
  }

  template <class P>
  HEARTH_ALWAYS_INLINE static void slope(const P* a, const P* b, const P* n, const P* dy, P* da, P* db) {
    const Parts<P> of(a, b, n);
    const P g = *dy * n[3];
    P d_joined = -ratio(ratio(g * of.shared, of.joined), of.joined), dcw = 0, dch = 0, dpx = 0, dpy = 0;
    P daw = 0, dah = 0, dbw = 0, dbh = 0;
    if constexpr (kind == Overlap::giou) {
      d_joined += ratio(g, of.area);
      const P d_area = -ratio(ratio(g * of.joined, of.area), of.area);
      dcw = d_area * of.ch, dch = d_area * of.cw;
    }
    if constexpr (has_distance) {
      const P per_reach = ratio(g, of.reach), d_reach = per_reach * ratio(of.far, of.reach);
      dpx = -per_reach * of.px, dpy = -per_reach * of.py;
      dcw = 2 * d_reach * of.cw, dch = 2 * d_reach * of.ch;
    }
    if constexpr (kind == Overlap::ciou) {
      const P d_turn = -g * of.alpha * 2 * scale<P> * of.turn;
      const P a2 = of.aw * of.aw + of.ah * of.ah, b2 = of.bw * of.bw + of.bh * of.bh;
      daw = -ratio(d_turn * of.ah, a2), dah = ratio(d_turn * of.aw, a2);
      dbw = ratio(d_turn * of.bh, b2), dbh = -ratio(d_turn * of.bw, b2);
    }
    const P d_shared = of.shared > P(0) ? ratio(g, of.joined) - d_joined : P(0);
    const P dw[2] = {d_shared * of.h, d_shared * of.w}, dc[2] = {dcw, dch}, dp[2] = {dpx, dpy};
    const P side_a[2] = {daw + d_joined * of.ah, dah + d_joined * of.aw};
    const P side_b[2] = {dbw + d_joined * of.bh, dbh + d_joined * of.bw};
    for (int i = 0; i < 2; ++i) {
      const P low = part_of(a[i], b[i]), high = part_of(a[i + 2], b[i + 2]);
      da[i] = -dw[i] * (P(1) - low) - dc[i] * low + dp[i] - side_a[i];
      db[i] = -dw[i] * low - dc[i] * (P(1) - low) - dp[i] - side_b[i];
      da[i + 2] = dw[i] * high + dc[i] * (P(1) - high) + dp[i] + side_a[i];
      db[i + 2] = dw[i] * (P(1) - high) + dc[i] * high - dp[i] + side_b[i];
    }
  }

 private:
  template <class P>
  static constexpr P scale = P(0.40528473456935108578);  // 4 / pi^2

  /// Of the diagonal; 0 for a box without sides.
  template <class P>
  HEARTH_ALWAYS_INLINE static P angle(P w, P h) {
    return h != P(0) ? std::atan(w / h) : (w > P(0) ? P(1.57079632679489661923) : P(0));
  }
};

using iou = OverlapOf<Overlap::iou>;
using giou = OverlapOf<Overlap::giou>;
using diou = OverlapOf<Overlap::diou>;
using ciou = OverlapOf<Overlap::ciou>;

/// A box's centre and sides along one axis.
template <class P>
struct Span {
  P centre, side;
  HEARTH_ALWAYS_INLINE Span(const P* box, int axis)
      : centre(P(0.5) * (box[axis] + box[axis + 2])), side(box[axis + 2] - box[axis]) {}
};

// n: the weights of x, y, w and h.
struct encode_deltas : Of<2, 4, false> {
  template <class P>
  HEARTH_ALWAYS_INLINE static void value(const P* a, const P* b, const P* n, P* y) {
    for (int axis = 0; axis < 2; ++axis) {
      const Span<P> box(a, axis), anchor(b, axis);
      y[axis] = n[axis] * (box.centre - anchor.centre) / anchor.side;
      y[axis + 2] = n[axis + 2] * std::log(box.side / anchor.side);
    }
  }
};

struct decode_deltas : Of<2, 4, true> {
  template <class P>
  static constexpr P most = P(4.13516655674235963);  // log(1000 / 16)

  template <class P>
  HEARTH_ALWAYS_INLINE static void value(const P* a, const P* b, const P* n, P* y) {
    for (int axis = 0; axis < 2; ++axis) {
      const Span<P> anchor(b, axis);
      const P centre = a[axis] / n[axis] * anchor.side + anchor.centre;
      const P half = P(0.5) * (std::exp(smaller(a[axis + 2] / n[axis + 2], most<P>)) * anchor.side);
      y[axis] = centre - half;
      y[axis + 2] = centre + half;
    }
  }
  template <class P>
  HEARTH_ALWAYS_INLINE static void slope(const P* a, const P* b, const P* n, const P* dy, P* da, P*) {
    for (int axis = 0; axis < 2; ++axis) {
      const Span<P> anchor(b, axis);
      const P length = a[axis + 2] / n[axis + 2];
      const P half = length <= most<P> ? P(0.5) * std::exp(length) * anchor.side : P(0);
      da[axis] = (dy[axis] + dy[axis + 2]) * anchor.side / n[axis];
      da[axis + 2] = (dy[axis + 2] - dy[axis]) * half / n[axis + 2];
    }
  }
};

// n[0]: 1 where distances are in sides of the anchor, 0 in pixels.
template <class P>
HEARTH_ALWAYS_INLINE P distance_unit(const Span<P>& anchor, const P* n) {
  return n[0] != P(0) ? anchor.side : P(1);
}

struct encode_distances : Of<2, 4, false> {
  template <class P>
  HEARTH_ALWAYS_INLINE static void value(const P* a, const P* b, const P* n, P* y) {
    for (int axis = 0; axis < 2; ++axis) {
      const Span<P> anchor(b, axis);
      y[axis] = (anchor.centre - a[axis]) / distance_unit(anchor, n);
      y[axis + 2] = (a[axis + 2] - anchor.centre) / distance_unit(anchor, n);
    }
  }
};

struct decode_distances : Of<2, 4, true> {
  template <class P>
  HEARTH_ALWAYS_INLINE static void value(const P* a, const P* b, const P* n, P* y) {
    for (int axis = 0; axis < 2; ++axis) {
      const Span<P> anchor(b, axis);
      y[axis] = anchor.centre - a[axis] * distance_unit(anchor, n);
      y[axis + 2] = anchor.centre + a[axis + 2] * distance_unit(anchor, n);
    }
  }
  template <class P>
  HEARTH_ALWAYS_INLINE static void slope(const P*, const P* b, const P* n, const P* dy, P* da, P*) {
    for (int axis = 0; axis < 2; ++axis) {
      const P unit = distance_unit(Span<P>(b, axis), n);
      da[axis] = -dy[axis] * unit;
      da[axis + 2] = dy[axis + 2] * unit;
    }
  }
};

/// f(functor) of a function.
template <class Visit>
void visit(kernels::BoxFunction function, Visit&& f) {
  switch (function) {
#define HEARTH_VISIT_BOXES(name)   \
  case kernels::BoxFunction::name: \
    return f(name{});
    HEARTH_BOX_FUNCTIONS(HEARTH_VISIT_BOXES)
#undef HEARTH_VISIT_BOXES
  }
}

/// The same for those that compare two boxes.
template <class Visit>
void visit_overlap(kernels::BoxFunction function, Visit&& f) {
  visit(function, [&]<class F>(F functor) {
    if constexpr (F::slope_b) f(functor);
  });
}

}  // namespace hearth::box_functors
