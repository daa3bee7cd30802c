// SPDX-License-Identifier: Apache-2.0
// Colours of 8-bit pixels.
#include "data/images/transforms/color.h"

#include <algorithm>
#include <cmath>

namespace hearth::data {
namespace {

constexpr int one = 1 << 16;

// Luma by ITU-R BT.601, weights in 1/65536.
int luma(const std::uint8_t* pixel) { return (19595 * pixel[0] + 38470 * pixel[1] + 7471 * pixel[2] + one / 2) >> 16; }

}  // namespace

int fixed_point(double factor) { return static_cast<int>(std::lround(factor * one)); }

std::uint8_t blend(int value, int base, int factor) {
  const std::int64_t mixed = static_cast<std::int64_t>(base) * one + static_cast<std::int64_t>(value - base) * factor;
  return static_cast<std::uint8_t>(std::clamp<std::int64_t>((mixed + one / 2) >> 16, 0, 255));
}

void blend_with(Image& image, int base, int factor) {
  for (std::uint8_t& value : image.pixels) value = blend(value, base, factor);
}

void change_contrast(Image& image, int factor) {
  std::int64_t total = 0;
  const std::size_t count = image.pixels.size() / static_cast<std::size_t>(image.channels);
  for (std::size_t i = 0; i < count; ++i) {
    total += image.channels == 3 ? luma(&image.pixels[3 * i]) : image.pixels[i];
  }
  const auto mean = static_cast<int>((total + static_cast<std::int64_t>(count / 2)) / static_cast<std::int64_t>(count));
  blend_with(image, mean, factor);
}

void change_saturation(Image& image, int factor) {
  for (std::size_t i = 0; i + 2 < image.pixels.size(); i += 3) {
    const int grey = luma(&image.pixels[i]);
    for (std::size_t c = 0; c < 3; ++c) image.pixels[i + c] = blend(image.pixels[i + c], grey, factor);
  }
}

}  // namespace hearth::data
