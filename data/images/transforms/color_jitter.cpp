// SPDX-License-Identifier: Apache-2.0
// Random changes of colour.
#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

#include "core/error.h"
#include "data/images/transforms/color.h"
#include "data/images/transforms/transforms.h"

namespace hearth::data {
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
