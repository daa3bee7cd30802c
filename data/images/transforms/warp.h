// SPDX-License-Identifier: Apache-2.0
// Affine maps of images.
#pragma once

#include <cstdint>
#include <span>

#include "data/images/codecs/image.h"

namespace hearth::data {

/// (x, y) goes to (a x + b y + c, d x + e y + f). Pixel centres lie at halves.
struct AffineMap {
  double a = 1, b = 0, c = 0, d = 0, e = 1, f = 0;
};

/// Fills `target`, which has its size, with what lies at map(x, y) of `source`: bilinear between pixel centres, the
/// outermost pixels up to the edge, and beyond it `fill`, a value a channel. ShapeError unless both have as many
/// channels as `fill` has values.
void warp(const Image& source, const AffineMap& map, std::span<const std::uint8_t> fill, Image& target);

}  // namespace hearth::data
