// SPDX-License-Identifier: Apache-2.0
// Blends of 8-bit images. They are integer arithmetic, so they give the same pixels everywhere.
#pragma once

#include <cstdint>

#include "data/images/codecs/image.h"

namespace hearth::data {

/// A factor in 1/65536, as the rest takes it.
int fixed_point(double factor);
/// base + (value - base) * factor, rounded and clipped.
std::uint8_t blend(int value, int base, int factor);
/// Every value blended with `base`: brightness, for base 0.
void blend_with(Image& image, int base, int factor);
/// Every value blended with the mean of the image's luma. Images of 1 or 3 channels with at least one pixel.
void change_contrast(Image& image, int factor);
/// Every pixel blended with its luma. Images of 3 channels.
void change_saturation(Image& image, int factor);

}  // namespace hearth::data
