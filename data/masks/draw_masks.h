// SPDX-License-Identifier: Apache-2.0
// Masks drawn in colours.
#pragma once

#include <array>
#include <cstdint>

#include "core/export.h"
#include "data/images/codecs/image.h"

namespace hearth::data {

/// Grey for class 0, mostly the background; for others hues that lie apart by the golden angle. Black below 0.
HEARTH_API std::array<std::uint8_t, 3> mask_colour(std::int64_t label);

/// Mixes the colours of a mask (labels and ignored_pixel, one channel) into an RGB image of its size, half and half;
/// pixels of class 0 stay, those that do not count become black. ShapeError for other images.
HEARTH_API void draw_mask(Image& image, const Image& mask);

}  // namespace hearth::data
