// SPDX-License-Identifier: Apache-2.0
// Colours of 8-bit pixels, and their jitter.
#include "data/transforms/color.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

#include "core/error.h"
#include "data/transforms/transforms.h"

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

namespace {

// Hue runs over 6 sectors; `turn` shifts it, in sectors.
void shift_hue(std::uint8_t* pixel, float turn) {
  const int high = std::max({pixel[0], pixel[1], pixel[2]});
  const int low = std::min({pixel[0], pixel[1], pixel[2]});
  if (high == low) return;
  const auto span = static_cast<float>(high - low);
  float hue = 0;
  if (high == pixel[0])
    hue = static_cast<float>(pixel[1] - pixel[2]) / span;
  else if (high == pixel[1])
    hue = static_cast<float>(pixel[2] - pixel[0]) / span + 2;
  else
    hue = static_cast<float>(pixel[0] - pixel[1]) / span + 4;
  for (int c = 0; c < 3; ++c) {
    // Distance of this channel's peak from the hue, around the circle.
    float distance = hue + turn - 2.0f * static_cast<float>(c);
    distance -= 6.0f * std::floor(distance / 6.0f + 0.5f);
    const float share = std::clamp(2.0f - std::abs(distance), 0.0f, 1.0f);
    pixel[c] = static_cast<std::uint8_t>(std::lround(static_cast<float>(low) + span * share));
  }
}

}  // namespace

void jitter_color(Image& image, const ColorJitter& options, Random& random) {
  HEARTH_CHECK(ShapeError, image.channels == 1 || image.channels == 3, "color_jitter: an image of ", image.channels,
               " channels; 1 or 3 are possible");
  if (image.pixels.empty()) return;
  const auto factor = [&](double width) {
    return fixed_point(random.uniform(std::max(0.0, 1.0 - width), 1.0 + width));
  };
  const int brightness = factor(options.brightness);
  const int contrast = factor(options.contrast);
  const int saturation = factor(options.saturation);
  const auto turn = static_cast<float>(6.0 * random.uniform(-options.hue, options.hue));
  std::array<int, 4> order{0, 1, 2, 3};
  for (std::size_t i = 4; i > 1; --i) std::swap(order[i - 1], order[random.below(i)]);
  for (const int step : order) {
    if (step == 0 && options.brightness > 0) blend_with(image, 0, brightness);
    if (step == 1 && options.contrast > 0) change_contrast(image, contrast);
    if (image.channels != 3) continue;
    if (step == 2 && options.saturation > 0) change_saturation(image, saturation);
    if (step == 3 && options.hue > 0) {
      for (std::size_t i = 0; i + 2 < image.pixels.size(); i += 3) shift_hue(&image.pixels[i], turn);
    }
  }
}

}  // namespace hearth::data
