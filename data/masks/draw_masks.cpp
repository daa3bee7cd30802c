// SPDX-License-Identifier: Apache-2.0
#include "data/masks/draw_masks.h"

#include <algorithm>
#include <cmath>

#include "core/error.h"
#include "data/masks/mask_classes.h"

namespace hearth::data {

std::array<std::uint8_t, 3> mask_colour(std::int64_t label) {
  if (label < 0) return {0, 0, 0};
  if (label == 0) return {110, 110, 110};
  std::array<std::uint8_t, 3> colour{};
  const double hue = std::fmod(static_cast<double>(label - 1) * 137.508, 360) / 60;
  for (std::size_t c = 0; c < 3; ++c) {
    const double from = std::fmod(hue + 6 - 2 * static_cast<double>(c), 6.0);
    const double strength = std::clamp(std::abs(from - 3) - 1, 0.0, 1.0);
    colour[c] = static_cast<std::uint8_t>(60 + 180 * strength);
  }
  return colour;
}

void draw_mask(Image& image, const Image& mask) {
  HEARTH_CHECK(ShapeError,
               image.channels == 3 && mask.channels == 1 && image.height == mask.height && image.width == mask.width,
               "draw_mask: an image of ", image.height, " x ", image.width, " x ", image.channels, " and a mask of ",
               mask.height, " x ", mask.width, " x ", mask.channels, "; they are RGB and of one channel, of one size");
  for (std::size_t i = 0; i < mask.pixels.size(); ++i) {
    const std::uint8_t label = mask.pixels[i];
    if (label == 0) continue;
    const auto colour = mask_colour(label == ignored_pixel ? -1 : label);
    std::uint8_t* const pixel = &image.pixels[3 * i];
    for (std::size_t c = 0; c < 3; ++c)
      pixel[c] = label == ignored_pixel ? std::uint8_t{0} : static_cast<std::uint8_t>((pixel[c] + colour[c]) / 2);
  }
}

}  // namespace hearth::data
