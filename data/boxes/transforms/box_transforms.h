// SPDX-License-Identifier: Apache-2.0
// What moves images and their boxes into the square that a model gets. Everything random is drawn from the stream that
// the caller gives, so results depend on (seed, epoch, sample) alone.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "core/random.h"
#include "data/boxes/annotations.h"
#include "data/images/codecs/image.h"
#include "data/images/codecs/sizing.h"
#include "data/images/transforms/transform_options.h"
#include "data/images/transforms/warp.h"

namespace hearth::data {

/// A box in pixels of the input. Its area stays in pixels of its image.
struct MovedBox : BoxAnnotation {
  double visible = 1;  ///< share of its area that was not cut off
  double scale = 1;    ///< area in the input of one of the image
  /// A crowd or an ignored box, which stands for a region.
  bool is_region() const { return crowd || ignored; }
};

/// How an image lies in a square input: `source` of it is resized to `target`, and what reaches outside is cut off.
struct Placement {
  Box source{};  ///< of the image
  Box target{};  ///< of the input, before it is mirrored
  Box canvas{};  ///< likewise: what has the mean colour around the target; empty for none
  bool mirrored = false;
  bool by_centre = false;  ///< whether boxes whose centre lies outside of `source` are dropped, regions excepted
};

/// (x, y) of an image lies at (sx x + tx, sy y + ty) of the input; sx is negative where it is mirrored.
struct PixelMap {
  double sx = 1, sy = 1, tx = 0, ty = 0;
};

/// ConfigError for options out of range.
void check_box_options(const TransformOptions& options);

/// All of an image, fitted to a square of `side` pixels. ShapeError for an empty image.
Placement place_whole(int height, int width, int side, Fit fit);
/// As training has it: mirrored, expanded, cropped and resized as the options say. `boxes` in pixels of the image.
/// ShapeError for an empty image.
Placement place_image(int height, int width, std::span<const BoxAnnotation> boxes, const TransformOptions& options,
                      Random& random);
/// A part of `view` of the kinds of SSD, or nothing for all of it. Of six kinds of a least IoU (0, 0.1, 0.3, 0.5, 0.7,
/// 0.9) one is drawn, or none, until a part is found within 50 tries. Its sides are 0.3 to 1 of the view's, its width
/// is 0.5 to 2 heights, the centre of a box lies inside, and one of these boxes has the IoU. Regions and boxes without
/// area do not count; without other boxes there is nothing to overlap, and the view stays.
std::optional<Box> draw_iou_crop(const Box& view, std::span<const BoxAnnotation> boxes, Random& random);

/// The resize that a placement in a square of `side` pixels needs.
Sizing sizing_of(const Placement& placement, int side, const TransformOptions& options);
PixelMap map_of(const Placement& placement, int side);
/// Draws what was read for sizing_of() into the square `input`. `mean` has a value a channel; `scratch` is overwritten.
void paint(const Image& decoded, const Region& region, const Placement& placement, std::span<const std::uint8_t> mean,
           Image& scratch, Image& input);
/// Appends the boxes that have area in the square.
void move_boxes(std::span<const BoxAnnotation> boxes, const Placement& placement, int side,
                std::vector<MovedBox>& moved);

/// From a square of `from` pixels to another of `to`, centre to centre but for the shift.
AffineMap draw_affine(const RandomAffine& options, int from, int to, Random& random);
/// The map back. ShapeError where there is none.
AffineMap inverse_of(const AffineMap& map);
/// Each box becomes the box around its moved corners; those without area in the square of `side` pixels are dropped.
void move_boxes(const AffineMap& map, int side, std::vector<MovedBox>& boxes);
/// Mirrors them, left to right, in a square of `side` pixels.
void mirror_boxes(int side, std::vector<MovedBox>& boxes);

/// Four images around a point of a square of twice the input's side, of which the middle is the input.
struct Mosaic {
  std::array<std::int64_t, 4> samples{};  ///< upper left, upper right, lower left, lower right
  int x = 0;
  int y = 0;
};
/// `sample` and three others of `count`, around a point in the middle half of each axis.
Mosaic draw_mosaic(std::int64_t sample, std::int64_t count, int side, Random& random);
/// Of an image that is fitted to `side`; in a square of `canvas` pixels, the middle of the mosaic.
Placement mosaic_tile(const Mosaic& mosaic, std::size_t tile, int height, int width, int side, int canvas);
/// Of an image to blend in: fitted to 0.5 to 1.5 of the side, anywhere, mirrored at even odds.
Placement place_partner(int height, int width, int side, Random& random);
/// Each pixel becomes the mean of both images. ShapeError unless they have one size.
void blend_evenly(Image& image, const Image& other);

}  // namespace hearth::data
