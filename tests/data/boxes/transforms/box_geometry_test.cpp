// SPDX-License-Identifier: Apache-2.0
// Crops, resizes and affine maps of images with boxes beside slow references, over many seeds.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <optional>

#include "core/error.h"
#include "data/boxes/transforms/box_transforms.h"
#include "data/images/codecs/decode.h"
#include "tests/data/images/plain_images.h"

namespace hearth::data::box_geometry_test {
namespace {

using Corners = std::array<double, 4>;

/// A pixel tells its place: red is x and green is y.
Image gradient(int height, int width) {
  Image image;
  image.reshape(height, width, 3);
  for (int y = 0; y < height; ++y)
    for (int x = 0; x < width; ++x) {
      std::uint8_t* const pixel = image.row(y) + 3 * x;
      pixel[0] = static_cast<std::uint8_t>(x), pixel[1] = static_cast<std::uint8_t>(y), pixel[2] = 200;
    }
  return image;
}

BoxAnnotation annotation(const Corners& corners, bool crowd = false) {
  return {
      .corners = corners, .area = (corners[2] - corners[0]) * (corners[3] - corners[1]), .label = 0, .crowd = crowd};
}

Image painted(const Image& image, const Placement& placement, const TransformOptions& options,
              std::vector<std::uint8_t> mean = {9, 9, 9}) {
  const Region region =
      region_of_whole(image, [&](int, int) { return sizing_of(placement, options.image_size, options); });
  Image input = constant(options.image_size, options.image_size, 3, 3), scratch;
  paint(image, region, placement, mean, scratch, input);
  return input;
}

/// Where the map says that the image's pixels lie, they do, and elsewhere the fill (3) or the mean (9).
void expect_pixels_where_the_map_says(const Image& image, const Placement& placement, const TransformOptions& options) {
  const int side = options.image_size;
  const Image input = painted(image, placement, options);
  const PixelMap map = map_of(placement, side);
  const Box& source = placement.source;
  for (int y = 0; y < side; ++y)
    for (int x = 0; x < side; ++x) {
      const double from_x = (x + 0.5 - map.tx) / map.sx, from_y = (y + 0.5 - map.ty) / map.sy;
      const std::uint8_t* const pixel = input.row(y) + 3 * x;
      const bool is_inside = from_x > source.left && from_x < source.left + source.width && from_y > source.top &&
                             from_y < source.top + source.height;
      if (!is_inside) {
        EXPECT_TRUE(pixel[2] == 3 || pixel[2] == 9) << x << ", " << y;
        continue;
      }
      ASSERT_EQ(pixel[2], 200) << x << ", " << y;
      // At the edge of the part a resize has no pixels of one side.
      ASSERT_NEAR(pixel[0], from_x - 0.5, 1 + 0.5 * std::max(1.0, 1 / std::abs(map.sx))) << x << ", " << y;
      ASSERT_NEAR(pixel[1], from_y - 0.5, 1 + 0.5 * std::max(1.0, 1 / map.sy)) << x << ", " << y;
    }
}

TEST(BoxTransforms, PlacePixelsWhereTheMapSays) {
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    Random random(seed, 7);
    const int height = 20 + static_cast<int>(random.below(120)), width = 20 + static_cast<int>(random.below(120));
    TransformOptions options{.image_size = 48 + static_cast<int>(random.below(30)),
                             .fit = random.below(2) == 0 ? Fit::pad : Fit::stretch,
                             .horizontal_flip = random.below(2) == 0};
    options.boxes.iou_crop = random.below(2) == 0;
    options.boxes.expand = random.below(2) == 0 ? 1 : 4;
    if (random.below(2) == 0) options.boxes.scale_jitter = {0.4, 2};
    const std::vector<BoxAnnotation> boxes{annotation({4, 5, 16, 18})};
    const Placement placement = place_image(height, width, boxes, options, random);
    expect_pixels_where_the_map_says(gradient(height, width), placement, options);
  }
}

TEST(BoxTransforms, WholeImagesAreFitted) {
  const Placement padded = place_whole(30, 60, 50, Fit::pad), stretched = place_whole(30, 60, 50, Fit::stretch);
  EXPECT_EQ(padded.target, (Box{12, 0, 25, 50}));
  EXPECT_EQ(stretched.target, (Box{0, 0, 50, 50}));
  std::vector<MovedBox> moved;
  const std::vector<BoxAnnotation> boxes{annotation({6, 9, 30, 30}), annotation({10, 3, 10, 7})};
  move_boxes(boxes, padded, 50, moved);
  ASSERT_EQ(moved.size(), 1u) << "the other has no area";
  EXPECT_EQ(moved[0].corners, (Corners{5, 19.5, 25, 37}));
  EXPECT_EQ(moved[0].visible, 1);
  EXPECT_EQ(moved[0].area, 24 * 21) << "of the image";
  moved.clear();
  move_boxes(boxes, stretched, 50, moved);
  EXPECT_EQ(moved[0].corners, (Corners{5, 15, 25, 50}));
  EXPECT_THROW(place_whole(0, 5, 50, Fit::pad), ShapeError);
}

/// torchvision's RandomIoUCrop, by counting pixels.
std::optional<Box> slow_iou_crop(const Box& view, const std::vector<std::array<int, 4>>& boxes, Random& random) {
  const double least[] = {0, 0.1, 0.3, 0.5, 0.7, 0.9};
  for (;;) {
    const auto kind = random.below(7);
    if (kind == 6) return std::nullopt;
    for (int i = 0; i < 50; ++i) {
      const int w = static_cast<int>(view.width * random.uniform(0.3, 1)),
                h = static_cast<int>(view.height * random.uniform(0.3, 1));
      if (w < 1 || h < 1) continue;
      const double ratio = 1.0 * w / h;
      if (ratio < 0.5 || ratio > 2) continue;
      const int top = view.top + static_cast<int>(random.below(static_cast<std::uint64_t>(view.height - h) + 1));
      const int left = view.left + static_cast<int>(random.below(static_cast<std::uint64_t>(view.width - w) + 1));
      double best = -1;
      for (const auto& box : boxes) {
        const int x2 = box[0] + box[2], y2 = box[1] + box[3];  // twice the centre
        if (!(x2 > 2 * left && x2 < 2 * (left + w) && y2 > 2 * top && y2 < 2 * (top + h))) continue;
        int common = 0;
        for (int y = box[1]; y < box[3]; ++y)
          for (int x = box[0]; x < box[2]; ++x) common += x >= left && x < left + w && y >= top && y < top + h;
        const int both = w * h + (box[2] - box[0]) * (box[3] - box[1]) - common;
        best = std::max(best, 1.0 * common / both);
      }
      if (best >= 0 && best >= least[kind]) return Box{top, left, h, w};
    }
  }
}

TEST(BoxTransforms, CropsByIouAreThoseOfASlowReference) {
  int whole = 0;
  for (std::uint64_t seed = 0; seed < 400; ++seed) {
    Random random(seed, 3);
    const int height = 16 + static_cast<int>(random.below(60)), width = 16 + static_cast<int>(random.below(60));
    const Box view{-static_cast<int>(random.below(10)), -static_cast<int>(random.below(10)), height + 12, width + 15};
    std::vector<std::array<int, 4>> boxes;
    std::vector<BoxAnnotation> annotated;
    for (std::uint64_t i = 0; i < 1 + random.below(3); ++i) {
      const int x = static_cast<int>(random.below(8)), y = static_cast<int>(random.below(8));
      boxes.push_back({x, y, x + 1 + static_cast<int>(random.below(8)), y + 1 + static_cast<int>(random.below(8))});
      const auto& box = boxes.back();
      annotated.push_back(annotation({1.0 * box[0], 1.0 * box[1], 1.0 * box[2], 1.0 * box[3]}));
    }
    Random again = random;
    const std::optional<Box> expected = slow_iou_crop(view, boxes, again),
                             part = draw_iou_crop(view, annotated, random);
    ASSERT_EQ(part, expected) << "seed " << seed;
    ASSERT_EQ(random.next_u64(), again.next_u64()) << "as many draws";
    whole += !part.has_value();
  }
  EXPECT_GT(whole, 400 / 7 / 2);
  EXPECT_LT(whole, 320);
}

TEST(BoxTransforms, CropsHaveNothingToOverlapWithoutBoxes) {
  const std::vector<BoxAnnotation> crowd{annotation({2, 2, 9, 9}, true), annotation({4, 4, 4, 9})};
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    Random random(seed, 0);
    EXPECT_FALSE(draw_iou_crop({0, 0, 30, 30}, {}, random));
    EXPECT_FALSE(draw_iou_crop({0, 0, 30, 30}, crowd, random)) << "regions and boxes without area do not count";
  }
}

TEST(BoxTransforms, CutBoxesStayByCentreAndRegionsByArea) {
  Placement placement{.source = {10, 10, 20, 20}, .target = {0, 0, 40, 40}, .by_centre = true};
  std::vector<BoxAnnotation> boxes{annotation({15, 15, 35, 25}), annotation({0, 12, 18, 20}),
                                   annotation({0, 12, 18, 20}, true), annotation({12, 12, 20, 20})};
  boxes[2].label = 5, boxes[0].ignored = false;
  std::vector<MovedBox> moved;
  move_boxes(boxes, placement, 40, moved);
  ASSERT_EQ(moved.size(), 3u) << "the second has its centre outside";
  EXPECT_EQ(moved[0].corners, (Corners{10, 10, 40, 30}));
  EXPECT_NEAR(moved[0].visible, 0.75, 1e-12);
  EXPECT_EQ(moved[0].scale, 4);
  EXPECT_TRUE(moved[1].crowd);
  EXPECT_EQ(moved[1].label, 5);
  EXPECT_EQ(moved[1].corners, (Corners{0, 4, 16, 20}));
  EXPECT_EQ(moved[2].corners, (Corners{4, 4, 20, 20}));
  EXPECT_EQ(moved[2].visible, 1);
  placement.by_centre = false, placement.mirrored = true;
  moved.clear();
  move_boxes(boxes, placement, 40, moved);
  ASSERT_EQ(moved.size(), 4u);
  EXPECT_EQ(moved[0].corners, (Corners{0, 10, 30, 30}));
  EXPECT_EQ(moved[1].corners, (Corners{24, 4, 40, 20}));
}

TEST(BoxTransforms, ExpandedImagesLieOnTheMeanColour) {
  TransformOptions options{.image_size = 40, .fit = Fit::pad};
  options.boxes.expand = 4, options.boxes.expand_probability = 1;
  double least = 1, greatest = 0;
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    Random random(seed, 1);
    const Placement placement = place_image(30, 60, {}, options, random);
    EXPECT_EQ(placement.source, (Box{0, 0, 30, 60}));
    const double share = 1.0 * placement.target.width / 40;
    least = std::min(least, share), greatest = std::max(greatest, share);
    const Image input = painted(gradient(30, 60), placement, options);
    EXPECT_EQ(input.row(0)[0], 3) << "the margin of the square";
    std::int64_t means = 0;
    for (std::size_t i = 2; i < input.pixels.size(); i += 3) means += input.pixels[i] == 9;
    const Box& canvas = placement.canvas;
    EXPECT_EQ(canvas.width, 40);
    EXPECT_EQ(means, canvas.height * canvas.width - placement.target.height * placement.target.width);
  }
  EXPECT_LT(least, 0.3);
  EXPECT_GT(greatest, 0.9);
}

using Matrix = std::array<std::array<double, 3>, 3>;
Matrix product(const Matrix& a, const Matrix& b) {
  Matrix c{};
  for (std::size_t i = 0; i < 3; ++i)
    for (std::size_t j = 0; j < 3; ++j)
      for (std::size_t k = 0; k < 3; ++k) c[i][j] += a[i][k] * b[k][j];
  return c;
}

/// YOLOv5's: centre, turn and scale, shear, shift.
Matrix slow_affine(const RandomAffine& options, int from, int to, Random& random) {
  constexpr double radians = 3.14159265358979323846 / 180;
  const double turn = radians * random.uniform(-options.rotation, options.rotation),
               scale = random.uniform(options.scale[0], options.scale[1]);
  const double shear_x = std::tan(radians * random.uniform(-options.shear, options.shear)),
               shear_y = std::tan(radians * random.uniform(-options.shear, options.shear));
  const double shift_x = random.uniform(-options.translation, options.translation),
               shift_y = random.uniform(-options.translation, options.translation);
  const Matrix centre{{{1, 0, -0.5 * from}, {0, 1, -0.5 * from}, {0, 0, 1}}};
  const Matrix turned{{{scale * std::cos(turn), scale * std::sin(turn), 0},
                       {-scale * std::sin(turn), scale * std::cos(turn), 0},
                       {0, 0, 1}}};
  const Matrix sheared{{{1, shear_x, 0}, {shear_y, 1, 0}, {0, 0, 1}}};
  const Matrix shifted{{{1, 0, (0.5 + shift_x) * to}, {0, 1, (0.5 + shift_y) * to}, {0, 0, 1}}};
  return product(shifted, product(sheared, product(turned, centre)));
}

constexpr RandomAffine strong{.rotation = 40, .scale = {0.5, 1.6}, .shear = 12, .translation = 0.2};

TEST(BoxTransforms, AffineMapsAreThoseOfASlowReference) {
  for (std::uint64_t seed = 0; seed < 100; ++seed) {
    Random random(seed, 0), again(seed, 0);
    const AffineMap map = draw_affine(strong, 96, 48, random);
    const Matrix expected = slow_affine(strong, 96, 48, again);
    const double rows[2][3] = {{map.a, map.b, map.c}, {map.d, map.e, map.f}};
    for (std::size_t i = 0; i < 2; ++i)
      for (std::size_t j = 0; j < 3; ++j) ASSERT_NEAR(rows[i][j], expected[i][j], 1e-9) << "seed " << seed;
    // A box is the box around its outline.
    const Corners box{20, 30, 60, 75};
    Corners around{1e9, 1e9, -1e9, -1e9};
    for (int i = 0; i <= 400; ++i) {
      const double t = i / 400.0, x = box[0] + t * (box[2] - box[0]), y = box[1] + t * (box[3] - box[1]);
      for (const auto& [px, py] : {std::pair{x, box[1]}, {x, box[3]}, {box[0], y}, {box[2], y}}) {
        const double to_x = expected[0][0] * px + expected[0][1] * py + expected[0][2],
                     to_y = expected[1][0] * px + expected[1][1] * py + expected[1][2];
        around = {std::min(around[0], to_x), std::min(around[1], to_y), std::max(around[2], to_x),
                  std::max(around[3], to_y)};
      }
    }
    const Corners cut{std::max(around[0], 0.0), std::max(around[1], 0.0), std::min(around[2], 48.0),
                      std::min(around[3], 48.0)};
    std::vector<MovedBox> boxes{MovedBox{annotation(box)}};
    move_boxes(map, 48, boxes);
    if (!(cut[2] > cut[0] && cut[3] > cut[1])) {
      EXPECT_TRUE(boxes.empty());
      continue;
    }
    ASSERT_EQ(boxes.size(), 1u);
    for (std::size_t i = 0; i < 4; ++i) ASSERT_NEAR(boxes[0].corners[i], cut[i], 1e-9);
    EXPECT_NEAR(boxes[0].visible,
                (cut[2] - cut[0]) * (cut[3] - cut[1]) / ((around[2] - around[0]) * (around[3] - around[1])), 1e-8);
    EXPECT_NEAR(boxes[0].scale, std::abs(map.a * map.e - map.b * map.d), 1e-9);
  }
}

TEST(BoxTransforms, WarpsPixelsAsASlowReference) {
  const Image image = noise(40, 40, 3);
  for (std::uint64_t seed = 0; seed < 10; ++seed) {
    Random random(seed, 5);
    const AffineMap map = draw_affine(strong, 40, 32, random);
    Image warped = constant(32, 32, 3, 0);
    const std::vector<std::uint8_t> fill{7, 8, 9};
    warp(image, inverse_of(map), fill, warped);
    const double determinant = map.a * map.e - map.b * map.d;
    for (int y = 0; y < 32; ++y)
      for (int x = 0; x < 32; ++x)
        for (int c = 0; c < 3; ++c) {
          const double dx = x + 0.5 - map.c, dy = y + 0.5 - map.f;
          const double u = (map.e * dx - map.b * dy) / determinant, v = (map.a * dy - map.d * dx) / determinant;
          double expected = 7 + c;
          if (u >= 0 && u < 40 && v >= 0 && v < 40) {
            expected = 0;
            // Each of the four neighbours weighs by its nearness; the outermost repeat.
            for (int ny = -1; ny <= 40; ++ny)
              for (int nx = -1; nx <= 40; ++nx) {
                const double weight =
                    std::max(0.0, 1 - std::abs(u - 0.5 - nx)) * std::max(0.0, 1 - std::abs(v - 0.5 - ny));
                if (weight > 0) expected += weight * image.row(std::clamp(ny, 0, 39))[3 * std::clamp(nx, 0, 39) + c];
              }
          }
          ASSERT_NEAR(warped.row(y)[3 * x + c], expected, 0.51) << x << ", " << y;
        }
  }
  EXPECT_THROW(inverse_of({1, 1, 0, 1, 1, 0}), ShapeError);
  Image grey = constant(4, 4, 1, 0);
  EXPECT_THROW(warp(image, {}, std::vector<std::uint8_t>{1}, grey), ShapeError);
}

}  // namespace
}  // namespace hearth::data::box_geometry_test
