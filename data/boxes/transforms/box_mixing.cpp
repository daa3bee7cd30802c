// SPDX-License-Identifier: Apache-2.0
// Several images with boxes in one: mosaic and mixup, as YOLOX has them.
// Source: Ge et al., "YOLOX: Exceeding YOLO Series in 2021" (2021).
#include <algorithm>

#include "core/error.h"
#include "data/boxes/transforms/box_transforms.h"

namespace hearth::data {
namespace {

/// Sizes of an image that is blended in, in sides of the input.
constexpr std::array<double, 2> partner_scale{0.5, 1.5};

}  // namespace

Mosaic draw_mosaic(std::int64_t sample, std::int64_t count, int side, Random& random) {
  HEARTH_CHECK(ConfigError, count > 0 && side > 0, "mosaic: of ", count, " images, of ", side, " pixels");
  const auto place = [&] { return side / 2 + static_cast<int>(random.below(static_cast<std::uint64_t>(side) + 1)); };
  Mosaic mosaic{.x = place(), .y = place()};
  mosaic.samples[0] = sample;
  for (std::size_t i = 1; i < 4; ++i)
    mosaic.samples[i] = static_cast<std::int64_t>(random.below(static_cast<std::uint64_t>(count)));
  return mosaic;
}

Placement mosaic_tile(const Mosaic& mosaic, std::size_t tile, int height, int width, int side, int canvas) {
  Placement placement = place_whole(height, width, side, Fit::pad);
  Box& target = placement.target;
  const int margin = (2 * side - canvas) / 2;
  target.left = mosaic.x - margin - (tile % 2 == 0 ? target.width : 0);
  target.top = mosaic.y - margin - (tile < 2 ? target.height : 0);
  return placement;
}

Placement place_partner(int height, int width, int side, Random& random) {
  const TransformOptions how{
      .image_size = side, .fit = Fit::pad, .horizontal_flip = true, .boxes = {.scale_jitter = partner_scale}};
  return place_image(height, width, {}, how, random);
}

void blend_evenly(Image& image, const Image& other) {
  HEARTH_CHECK(ShapeError, image.pixels.size() == other.pixels.size() && image.width == other.width,
               "mixup: images of ", image.height, " x ", image.width, " and ", other.height, " x ", other.width,
               " pixels; both are to have one size");
  std::transform(image.pixels.begin(), image.pixels.end(), other.pixels.begin(), image.pixels.begin(),
                 [](std::uint8_t a, std::uint8_t b) { return static_cast<std::uint8_t>((a + b + 1) / 2); });
}

}  // namespace hearth::data
