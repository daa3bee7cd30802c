// SPDX-License-Identifier: Apache-2.0
// One axis of a resampled image: which pixels of the input each pixel of the result is made of, with which weights, and
// the reverse for the gradient. The same functions make the tables of both devices.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "core/half.h"

namespace hearth::kernels {

/// Neighbouring pixels [first, last).
struct PixelRange {
  std::int64_t first, last;
};

enum class Filter : std::uint8_t {
  nearest,   ///< one pixel
  linear,    ///< the two around a position
  triangle,  ///< all within `reach` of a centre, the nearer the more
};

/// Pixel o of `out` is the sum of weight_of(o, i) times pixel i over taps_of(o).
struct ResampledAxis {
  std::int64_t in = 1, out = 1;
  Filter filter = Filter::nearest;
  double scale = 1;  ///< pixels of the input from one pixel of the result to the next
  double shift = 0;  ///< linear: where the first one reads

  /// triangle: pixels to either side of the centre.
  HEARTH_HD double reach() const { return scale > 1 ? scale : 1; }
  HEARTH_HD double centre_of(std::int64_t o) const { return scale * (static_cast<double>(o) + 0.5); }
  HEARTH_HD double position_of(std::int64_t o) const {
    const double position = scale * static_cast<double>(o) + shift;
    return position > 0 ? position : 0;
  }
  HEARTH_HD std::int64_t nearest_to(std::int64_t o) const {
    if (out == in) return o;
    if (out == 2 * in) return o / 2;
    // In f32 as PyTorch does, or other pixels would be taken.
    const auto i = static_cast<std::int64_t>(std::floor(static_cast<float>(o) * static_cast<float>(scale)));
    return i < in - 1 ? i : in - 1;
  }

  /// At least one; neither end moves back as o grows.
  HEARTH_HD PixelRange taps_of(std::int64_t o) const {
    if (filter == Filter::nearest) {
      const std::int64_t i = nearest_to(o);
      return {i, i + 1};
    }
    if (filter == Filter::linear) {
      const double position = position_of(o);
      const auto i = static_cast<std::int64_t>(position);
      if (i >= in - 1) return {in - 1, in};
      return {i, position > static_cast<double>(i) ? i + 2 : i + 1};
    }
    const double centre = centre_of(o);
    const auto first = static_cast<std::int64_t>(std::floor(centre - reach() + 0.5));
    const auto last = static_cast<std::int64_t>(std::ceil(centre + reach() - 0.5));
    return {first > 0 ? first : 0, last < in ? last : in};
  }

  /// Of a pixel among the taps of o. That of a triangle is to be divided by the sum over the taps.
  HEARTH_HD double raw_weight(std::int64_t o, std::int64_t i) const {
    if (filter == Filter::nearest) return 1;
    if (filter == Filter::linear) {
      const double position = position_of(o);
      if (static_cast<std::int64_t>(position) >= in - 1) return 1;
      return 1 - std::fabs(position - static_cast<double>(i));
    }
    return 1 - std::fabs(static_cast<double>(i) + 0.5 - centre_of(o)) / reach();
  }
  /// What the weights of the taps of o are divided by.
  HEARTH_HD double total_weight(std::int64_t o, const PixelRange& taps) const {
    if (filter != Filter::triangle) return 1;
    double total = 0;
    for (std::int64_t i = taps.first; i < taps.last; ++i) total += raw_weight(o, i);
    return total;
  }

  /// The first pixel of the result whose taps end, or begin, behind pixel i.
  HEARTH_HD std::int64_t first_behind(std::int64_t i, bool begins) const {
    std::int64_t low = 0, high = out;
    while (low < high) {
      const std::int64_t middle = low + (high - low) / 2;
      const PixelRange taps = taps_of(middle);
      if ((begins ? taps.first : taps.last) > i)
        high = middle;
      else
        low = middle + 1;
    }
    return low;
  }
  /// The pixels of the result that have pixel i among their taps, which may be none.
  HEARTH_HD PixelRange results_of(std::int64_t i) const { return {first_behind(i, false), first_behind(i, true)}; }

  /// No pixel of the result has more taps.
  std::int64_t most_taps() const {
    if (filter == Filter::nearest) return 1;
    return std::min(in, filter == Filter::linear ? 2 : 2 * static_cast<std::int64_t>(std::ceil(reach())) + 1);
  }
  /// No pixel of the input is a tap of more results.
  std::int64_t most_results() const {
    const double width = 2 * (filter == Filter::triangle ? reach() : 1);
    return scale * static_cast<double>(out) <= width ? out
                                                     : std::min(out, static_cast<std::int64_t>(width / scale) + 3);
  }
};

/// The weights of an axis as an array: result `at` is made of pixels [first[at], first[at] + count[at]) of what is
/// read, with the weights from at * stride on. `transposed`: of the gradient, whose results are the pixels of the
/// input.
template <class P>
struct TapTable {
  std::int64_t* first;
  std::int64_t* count;
  P* weights;
  std::int64_t stride;

  HEARTH_HD void fill(const ResampledAxis& axis, bool transposed, std::int64_t at) const {
    const PixelRange read = transposed ? axis.results_of(at) : axis.taps_of(at);
    first[at] = read.first;
    count[at] = read.last - read.first;
    P* const into = weights + at * stride;
    double total = transposed ? 1 : axis.total_weight(at, read);
    for (std::int64_t i = read.first; i < read.last; ++i) {
      const std::int64_t o = transposed ? i : at, tap = transposed ? at : i;
      if (transposed) total = axis.total_weight(o, axis.taps_of(o));
      into[i - read.first] = static_cast<P>(axis.raw_weight(o, tap) / total);
    }
  }
};

/// Results of an axis, and the room that the weights of one need.
inline std::int64_t results_along(const ResampledAxis& axis, bool transposed) {
  return transposed ? axis.in : axis.out;
}
inline std::int64_t table_stride(const ResampledAxis& axis, bool transposed) {
  return transposed ? axis.most_results() : axis.most_taps();
}

}  // namespace hearth::kernels
