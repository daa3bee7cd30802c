// SPDX-License-Identifier: Apache-2.0
// One axis of a box on a feature map: which pixels each of its bins reads, with which weights. A sample reads the two
// pixels around it, bilinearly along each axis, so that a bin's weights are a product of those of both axes. The same
// functions serve both devices, and the gradient.
#pragma once

#include <cmath>
#include <cstdint>

#include "core/half.h"

namespace hearth::kernels {

/// What roi_align is told beside its tensors.
struct RoiGrid {
  std::int64_t rows, columns;  ///< of bins
  std::int64_t samples;        ///< along each axis of a bin; 0: one for each pixel of it
  double scale;
  bool aligned;
};

/// Neighbours [first, last).
struct RoiRange {
  std::int64_t first, last;
};

template <class P>
struct RoiAxis {
  P start, bin;          ///< where the box begins, and how long a bin is, in pixels
  std::int64_t bins;     ///< of the box
  std::int64_t samples;  ///< of a bin
  std::int64_t extent;   ///< pixels of the map, at least 1

  HEARTH_HD RoiAxis(P low, P high, const RoiGrid& grid, std::int64_t bins_, std::int64_t extent_)
      : bins(bins_), extent(extent_) {
    const P scale = static_cast<P>(grid.scale), offset = grid.aligned ? P(0.5) : P(0);
    start = low * scale - offset;
    P length = high * scale - offset - start;
    if (!grid.aligned && length < P(1)) length = P(1);
    bin = length / static_cast<P>(bins);
    // None for NaN, and none for a bin so large that it is an error.
    const P wanted = std::ceil(bin);
    const bool is_size = wanted > P(0) && wanted < P(1 << 24);
    samples = grid.samples > 0 ? grid.samples : is_size ? static_cast<std::int64_t>(wanted) : 0;
  }

  /// Of sample i of a bin.
  HEARTH_HD P position(std::int64_t p, std::int64_t i) const {
    return start + static_cast<P>(p) * bin + (static_cast<P>(i) + P(0.5)) * bin / static_cast<P>(samples);
  }

  /// The weight of a pixel in a sample. Samples more than a pixel outside of the map read nothing.
  HEARTH_HD P tap(P at, std::int64_t pixel) const {
    if (!(at >= P(-1) && at <= static_cast<P>(extent))) return P(0);
    if (at < P(0)) at = P(0);
    const auto low = static_cast<std::int64_t>(at);
    if (low >= extent - 1) return pixel == extent - 1 ? P(1) : P(0);
    const P part = at - static_cast<P>(low);
    return pixel == low ? P(1) - part : (pixel == low + 1 ? part : P(0));
  }

  /// The whole numbers about x to y, at least [x, y], within [0, count). All of them if one is no number.
  HEARTH_HD static RoiRange within(P x, P y, std::int64_t count) {
    const P most = static_cast<P>(count);
    if (!(x <= y)) return {0, count};
    const P low = std::floor(x), high = std::floor(y) + P(1);
    return {low > P(0) ? (low < most ? static_cast<std::int64_t>(low) : count) : 0,
            high < most ? (high > P(0) ? static_cast<std::int64_t>(high) : 0) : count};
  }
  /// Where samples may be that read a pixel.
  HEARTH_HD P reach_below(std::int64_t pixel) const { return static_cast<P>(pixel - 1); }
  HEARTH_HD P reach_above(std::int64_t pixel) const { return static_cast<P>(pixel + 1); }

  /// The weight of a pixel in all samples of a bin.
  HEARTH_HD P weight(std::int64_t p, std::int64_t pixel) const {
    const P step = bin / static_cast<P>(samples), begin = start + static_cast<P>(p) * bin;
    // One further at either end, for rounding.
    const RoiRange near = step > P(0) ? within((reach_below(pixel) - begin) / step - P(1.5),
                                               (reach_above(pixel) - begin) / step + P(0.5), samples)
                                      : RoiRange{0, samples};
    P sum = 0;
    for (std::int64_t i = near.first; i < near.last; ++i) sum += tap(position(p, i), pixel);
    return sum;
  }

  /// The pixels that a bin reads, at most.
  HEARTH_HD RoiRange pixels_of(std::int64_t p) const {
    if (samples <= 0) return {0, 0};
    const P a = position(p, 0), b = position(p, samples - 1), low = a < b ? a : b, high = a < b ? b : a;
    if (!(high >= P(-1) && low <= static_cast<P>(extent))) return {0, 0};
    const P last = static_cast<P>(extent - 1);
    return within(low < last ? low : last, (high > P(0) ? high : P(0)) + P(1), extent);
  }
  /// The bins that read a pixel, at most.
  HEARTH_HD RoiRange bins_of(std::int64_t pixel) const {
    if (samples <= 0) return {0, 0};
    if (!(bin > P(0))) return {0, bins};
    return within((reach_below(pixel) - start) / bin - P(0.5), (reach_above(pixel) - start) / bin + P(0.5), bins);
  }
};

/// What the sums of a bin are divided by.
template <class P>
HEARTH_HD P roi_share(const RoiAxis<P>& down, const RoiAxis<P>& across) {
  const std::int64_t count = down.samples * across.samples;
  return P(1) / static_cast<P>(count > 1 ? count : 1);
}

}  // namespace hearth::kernels
