// SPDX-License-Identifier: Apache-2.0
// Resampling of NHWC images to another size.
#pragma once

#include <cstdint>
#include <optional>

#include "core/tensor.h"
#include "ops/pair.h"

namespace hearth {

enum class Interpolation : std::uint8_t { nearest, bilinear };

/// One factor for both image axes, or {height, width}.
struct ImageScale {
  double h = 1;
  double w = 1;

  constexpr ImageScale(double both) : h(both), w(both) {}  // NOLINT: `.scale = 2` is meant to read so
  constexpr ImageScale(double height, double width) : h(height), w(width) {}
};

struct InterpolateOptions {
  std::optional<Pair> size = {};         ///< of y, {height, width}, >= 1; either this or
  std::optional<ImageScale> scale = {};  ///< size of y / size of x, > 0
  Interpolation mode = Interpolation::nearest;
  /// bilinear only. True: the centres of the corner pixels of x and y lie on each other. False: the corners of their
  /// areas do.
  bool align_corners = false;
  /// bilinear only. Where y is smaller, each of its pixels is a weighted mean of all the pixels of x below it, not of
  /// the nearest four. Where y is larger it is plain bilinear interpolation.
  bool antialias = false;
};

/// Images of another size, as `torch.nn.functional.interpolate` makes them: x [N,H,W,C], y [N,P,Q,C].
///
/// P and Q are `size`, or floor(H scale), floor(W scale). With `scale` it is the given factor that maps pixels onto
/// each other, not P / H: pass `size` for the latter (PyTorch's recompute_scale_factor). nearest takes the pixel at
/// floor(p H / P), in f32 as PyTorch does. bilinear reads x at (p + 1/2) H / P - 1/2, or with `align_corners` at
/// p (H - 1) / (P - 1). Any floating type; sums in f32 or wider. The gradient adds up, for each pixel of x, the pixels
/// of y that it went into, in a fixed order: the bits are the same in every run.
/// UsageError unless one of `size` and `scale` is given and the options fit the mode, ShapeError, DTypeError.
HEARTH_API Tensor interpolate(const Tensor& x, const InterpolateOptions& options);

}  // namespace hearth
