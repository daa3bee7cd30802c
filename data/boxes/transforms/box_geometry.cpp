// SPDX-License-Identifier: Apache-2.0
// Crops, resizes and affine maps of images with boxes.
#include <algorithm>
#include <cmath>
#include <iterator>

#include "core/error.h"
#include "data/boxes/transforms/box_transforms.h"
#include "data/images/transforms/resize.h"
#include "data/images/transforms/transforms.h"

namespace hearth::data {
namespace {

constexpr int crop_tries = 50;
/// By kind of iou_crop, behind the kind that crops nothing.
constexpr std::array<double, 6> least_overlaps{0, 0.1, 0.3, 0.5, 0.7, 0.9};
constexpr double least_side = 0.3, greatest_ratio = 2;

double area_of(const std::array<double, 4>& corners) {
  return std::max(corners[2] - corners[0], 0.0) * std::max(corners[3] - corners[1], 0.0);
}

std::array<double, 4> corners_of(const Box& box) {
  return {1.0 * box.left, 1.0 * box.top, 1.0 * box.left + box.width, 1.0 * box.top + box.height};
}

std::array<double, 4> common_of(const std::array<double, 4>& a, const std::array<double, 4>& b) {
  return {std::max(a[0], b[0]), std::max(a[1], b[1]), std::min(a[2], b[2]), std::min(a[3], b[3])};
}

Box common_of(const Box& a, const Box& b) {
  const int top = std::max(a.top, b.top), left = std::max(a.left, b.left);
  return {top, left, std::min(a.top + a.height, b.top + b.height) - top,
          std::min(a.left + a.width, b.left + b.width) - left};
}

bool is_empty(const Box& box) { return box.height <= 0 || box.width <= 0; }

bool has_centre_within(const std::array<double, 4>& corners, const std::array<double, 4>& part) {
  const double x = (corners[0] + corners[2]) / 2, y = (corners[1] + corners[3]) / 2;
  return x > part[0] && x < part[2] && y > part[1] && y < part[3];
}

double iou_of(const std::array<double, 4>& a, const std::array<double, 4>& b) {
  const double common = area_of(common_of(a, b));
  return common / (area_of(a) + area_of(b) - common);
}

/// Cuts what lies outside of `part` off a box; whether any area is left.
bool cut(MovedBox& box, const std::array<double, 4>& part) {
  const std::array<double, 4> left = common_of(box.corners, part);
  if (!(left[2] > left[0] && left[3] > left[1])) return false;
  const double share = area_of(left) / area_of(box.corners);
  // A rounding cuts nothing off, so that areas stay as the labels have them.
  if (share < 1 - 1e-9) box.visible *= share;
  box.corners = left;
  return true;
}

int drawn_within(int spare, Random& random) {
  const int place = static_cast<int>(random.below(static_cast<std::uint64_t>(std::abs(spare)) + 1));
  return spare < 0 ? -place : place;
}

/// `view` of the image, of which perhaps a part lies outside of it, becomes `target`.
Placement placed(const Box& view, const Box& target, int height, int width) {
  Placement placement;
  placement.source = common_of(view, {0, 0, height, width});
  const double sx = 1.0 * target.width / view.width, sy = 1.0 * target.height / view.height;
  const auto at = [](int begin, double scale, int place) {
    return begin + static_cast<int>(std::lround(scale * place));
  };
  const int left = at(target.left, sx, placement.source.left - view.left),
            top = at(target.top, sy, placement.source.top - view.top);
  const int right = at(target.left, sx, placement.source.left + placement.source.width - view.left),
            bottom = at(target.top, sy, placement.source.top + placement.source.height - view.top);
  placement.target = {top, left, std::max(bottom - top, 1), std::max(right - left, 1)};
  return placement;
}

/// Height and width of a view that is fitted to the side.
std::pair<int, int> fitted(const Box& view, int side, Fit fit) {
  if (fit == Fit::stretch) return {side, side};
  const Sizing sizing = whole_within(view.height, view.width, side);
  return {sizing.height, sizing.width};
}

void fill_box(Image& image, const Box& box, std::span<const std::uint8_t> colour) {
  for (int y = box.top; y < box.top + box.height; ++y)
    for (int x = box.left; x < box.left + box.width; ++x)
      std::copy(colour.begin(), colour.end(), image.row(y) + static_cast<std::ptrdiff_t>(x) * image.channels);
}

Box mirrored(Box box, int side) {
  box.left = side - box.left - box.width;
  return box;
}

void check_range(const char* name, const std::array<double, 2>& range, double most) {
  HEARTH_CHECK(ConfigError, range[0] > 0 && range[0] <= range[1] && range[1] <= most, name, ": ", range[0], " to ",
               range[1], "; wanted is 0 < least <= greatest <= ", most);
}

}  // namespace

void check_box_options(const TransformOptions& options) {
  const BoxTransformOptions& boxes = options.boxes;
  HEARTH_CHECK(ConfigError, options.fit != Fit::crop && options.image_size > 0,
               "loader: images with boxes need transforms with an image_size and the fit pad or stretch");
  for (const double share : {boxes.expand_probability, boxes.mosaic, boxes.mixup, boxes.min_visibility})
    HEARTH_CHECK(ConfigError, share >= 0 && share <= 1, "loader: a share or probability of ", share,
                 " for images with boxes is outside 0..1");
  HEARTH_CHECK(ConfigError, boxes.expand >= 1 && boxes.expand <= 16, "expand: ", boxes.expand, " is outside 1..16");
  check_range("scale_jitter", boxes.scale_jitter, 16);
  check_range("affine: scale", boxes.affine.scale, 16);
  const RandomAffine& affine = boxes.affine;
  HEARTH_CHECK(ConfigError,
               affine.rotation >= 0 && affine.rotation <= 180 && affine.shear >= 0 && affine.shear <= 40 &&
                   affine.translation >= 0 && affine.translation <= 1,
               "affine: a rotation of ", affine.rotation, ", shear of ", affine.shear, " and translation of ",
               affine.translation, "; possible are 0..180 and 0..40 degrees, and 0..1");
  HEARTH_CHECK(ConfigError, boxes.close_mosaic >= 0, "close_mosaic: ", boxes.close_mosaic, " is below 0");
}

Placement place_whole(int height, int width, int side, Fit fit) {
  const Box view{0, 0, height, width};
  HEARTH_CHECK(ShapeError, height > 0 && width > 0, "resize: an empty image");
  const auto [rows, columns] = fitted(view, side, fit);
  return placed(view, {(side - rows) / 2, (side - columns) / 2, rows, columns}, height, width);
}

Placement place_image(int height, int width, std::span<const BoxAnnotation> boxes, const TransformOptions& options,
                      Random& random) {
  HEARTH_CHECK(ShapeError, height > 0 && width > 0, "resize: an empty image");
  const BoxTransformOptions& how = options.boxes;
  const int side = options.image_size;
  const bool is_mirrored = options.horizontal_flip && random.below(2) == 1;
  Box view{0, 0, height, width};
  const bool expands = how.expand > 1 && random.uniform() < how.expand_probability;
  if (expands) {
    const double ratio = random.uniform(1, how.expand);
    view.height = static_cast<int>(height * ratio), view.width = static_cast<int>(width * ratio);
    view.top = -drawn_within(view.height - height, random), view.left = -drawn_within(view.width - width, random);
  }
  bool crops = false;
  if (how.iou_crop)
    if (const std::optional<Box> part = draw_iou_crop(view, boxes, random)) view = *part, crops = true;
  auto [rows, columns] = fitted(view, side, options.fit);
  Box target{(side - rows) / 2, (side - columns) / 2, rows, columns};
  if (how.scale_jitter[0] != 1 || how.scale_jitter[1] != 1) {
    const double factor = random.uniform(how.scale_jitter[0], how.scale_jitter[1]);
    target.height = std::max(static_cast<int>(std::lround(rows * factor)), 1);
    target.width = std::max(static_cast<int>(std::lround(columns * factor)), 1);
    target.top = drawn_within(side - target.height, random), target.left = drawn_within(side - target.width, random);
  }
  Placement placement = placed(view, target, height, width);
  placement.mirrored = is_mirrored;
  placement.by_centre = crops;
  if (expands) placement.canvas = common_of(target, {0, 0, side, side});
  return placement;
}

std::optional<Box> draw_iou_crop(const Box& view, std::span<const BoxAnnotation> boxes, Random& random) {
  std::vector<std::array<double, 4>> candidates;
  for (const BoxAnnotation& box : boxes)
    if (!box.crowd && !box.ignored && box.has_area()) candidates.push_back(box.corners);
  if (candidates.empty()) return std::nullopt;
  while (true) {
    const std::uint64_t kind = random.below(least_overlaps.size() + 1);
    if (kind == least_overlaps.size()) return std::nullopt;
    for (int i = 0; i < crop_tries; ++i) {
      const int width = static_cast<int>(view.width * random.uniform(least_side, 1)),
                height = static_cast<int>(view.height * random.uniform(least_side, 1));
      if (width < 1 || height < 1 || width > greatest_ratio * height || height > greatest_ratio * width) continue;
      const Box part{view.top + drawn_within(view.height - height, random),
                     view.left + drawn_within(view.width - width, random), height, width};
      const std::array<double, 4> corners = corners_of(part);
      const bool fits = std::any_of(candidates.begin(), candidates.end(), [&](const std::array<double, 4>& box) {
        return has_centre_within(box, corners) && iou_of(box, corners) >= least_overlaps[kind];
      });
      if (fits) return part;
    }
  }
}

Sizing sizing_of(const Placement& placement, int side, const TransformOptions& options) {
  const Box &target = placement.target, shown = common_of(target, {0, 0, side, side});
  // Of an image that lies outside, a pixel stands for the nothing that a resize cannot make.
  const Box window = is_empty(shown) ? Box{0, 0, 1, 1}
                                     : Box{shown.top - target.top, shown.left - target.left, shown.height, shown.width};
  return {.box = placement.source,
          .height = target.height,
          .width = target.width,
          .window = window,
          .filter = options.filter,
          .scaled_decoding = options.scaled_decoding,
          .mirrored = placement.mirrored};
}

PixelMap map_of(const Placement& placement, int side) {
  const Box &source = placement.source, &target = placement.target;
  PixelMap map{1.0 * target.width / source.width, 1.0 * target.height / source.height, 0, 0};
  map.tx = target.left - source.left * map.sx, map.ty = target.top - source.top * map.sy;
  if (placement.mirrored) map.sx = -map.sx, map.tx = side - map.tx;
  return map;
}

void paint(const Image& decoded, const Region& region, const Placement& placement, std::span<const std::uint8_t> mean,
           Image& scratch, Image& input) {
  const int side = input.width;
  const auto in_input = [&](const Box& box) { return placement.mirrored ? mirrored(box, side) : box; };
  fill_box(input, in_input(placement.canvas), mean);
  const Box shown = in_input(common_of(placement.target, {0, 0, side, side}));
  if (is_empty(shown)) return;
  if (shown.height == side && shown.width == side) return resize(decoded, region, input);
  resize(decoded, region, scratch);
  for (int y = 0; y < shown.height; ++y)
    std::copy_n(scratch.row(y), scratch.row_bytes(),
                input.row(shown.top + y) + static_cast<std::ptrdiff_t>(shown.left) * input.channels);
}

void move_boxes(std::span<const BoxAnnotation> boxes, const Placement& placement, int side,
                std::vector<MovedBox>& moved) {
  const PixelMap map = map_of(placement, side);
  const Box shown = common_of(placement.target, {0, 0, side, side});
  const std::array<double, 4> part = corners_of(placement.mirrored ? mirrored(shown, side) : shown);
  const std::array<double, 4> source = corners_of(placement.source);
  for (const BoxAnnotation& box : boxes) {
    MovedBox to{box};
    if (placement.by_centre && !to.is_region() && !has_centre_within(box.corners, source)) continue;
    const double x[] = {box.corners[0] * map.sx + map.tx, box.corners[2] * map.sx + map.tx};
    to.corners = {std::min(x[0], x[1]), box.corners[1] * map.sy + map.ty, std::max(x[0], x[1]),
                  box.corners[3] * map.sy + map.ty};
    to.scale = std::abs(map.sx * map.sy);
    if (cut(to, part)) moved.push_back(to);
  }
}

AffineMap draw_affine(const RandomAffine& options, int from, int to, Random& random) {
  constexpr double radians = 3.14159265358979323846 / 180;
  const double angle = radians * random.uniform(-options.rotation, options.rotation);
  const double scale = random.uniform(options.scale[0], options.scale[1]);
  const double slope_x = std::tan(radians * random.uniform(-options.shear, options.shear)),
               slope_y = std::tan(radians * random.uniform(-options.shear, options.shear));
  const double cosine = scale * std::cos(angle), sine = scale * std::sin(angle);
  // Turned first, then sheared.
  AffineMap map{cosine - slope_x * sine, sine + slope_x * cosine, 0,
                slope_y * cosine - sine, slope_y * sine + cosine, 0};
  const double centre = from / 2.0;
  map.c = to / 2.0 + to * random.uniform(-options.translation, options.translation) - centre * (map.a + map.b);
  map.f = to / 2.0 + to * random.uniform(-options.translation, options.translation) - centre * (map.d + map.e);
  return map;
}

AffineMap inverse_of(const AffineMap& map) {
  const double determinant = map.a * map.e - map.b * map.d;
  HEARTH_CHECK(ShapeError, determinant != 0, "affine: a map that leaves no area has no inverse");
  AffineMap back{map.e / determinant, -map.b / determinant, 0, -map.d / determinant, map.a / determinant, 0};
  back.c = -(back.a * map.c + back.b * map.f), back.f = -(back.d * map.c + back.e * map.f);
  return back;
}

void move_boxes(const AffineMap& map, int side, std::vector<MovedBox>& boxes) {
  const double determinant = std::abs(map.a * map.e - map.b * map.d);
  const auto leaves = [&](MovedBox& box) {
    const std::array<double, 4> at = box.corners;
    double x[4], y[4];
    for (std::size_t i = 0; i < 4; ++i) {
      const double from_x = at[i % 2 == 0 ? 0 : 2], from_y = at[i < 2 ? 1 : 3];
      x[i] = map.a * from_x + map.b * from_y + map.c, y[i] = map.d * from_x + map.e * from_y + map.f;
    }
    const auto [left, right] = std::minmax_element(std::begin(x), std::end(x));
    const auto [top, bottom] = std::minmax_element(std::begin(y), std::end(y));
    box.corners = {*left, *top, *right, *bottom};
    box.scale *= determinant;
    return !cut(box, {0, 0, 1.0 * side, 1.0 * side});
  };
  boxes.erase(std::remove_if(boxes.begin(), boxes.end(), leaves), boxes.end());
}

void mirror_boxes(int side, std::vector<MovedBox>& boxes) {
  for (MovedBox& box : boxes) {
    const double left = box.corners[0];
    box.corners[0] = side - box.corners[2], box.corners[2] = side - left;
  }
}

}  // namespace hearth::data
