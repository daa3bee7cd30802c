// SPDX-License-Identifier: Apache-2.0
// Batches of images with boxes that training moves: boxes stay around their pixels, mosaics and mixups are those of a
// slow reference, and all is a function of seed, epoch and sample.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <set>

#include "core/error.h"
#include "data/boxes/box_dataset.h"
#include "data/boxes/transforms/box_transforms.h"
#include "data/images/transforms/resize.h"
#include "data/images/transforms/transforms.h"
#include "data/loading/loader.h"
#include "data/loading/order.h"
#include "data/loading/quarantine.h"
#include "data/splits.h"
#include "tests/data/images/plain_images.h"
#include "tests/support/error_message.h"
#include "tests/support/temp_dir.h"

namespace hearth::data::box_moves_test {
namespace {

using test::contains;
using test::error_message;
using Corners = std::array<double, 4>;

constexpr RandomAffine strong{.rotation = 40, .scale = {0.5, 1.6}, .shear = 12, .translation = 0.2};

BoxAnnotation annotation(const Corners& corners, bool crowd = false) {
  return {
      .corners = corners, .area = (corners[2] - corners[0]) * (corners[3] - corners[1]), .label = 0, .crowd = crowd};
}

/// Images with a rectangle or two of a class's colour on black, in files.
struct BoxMoves : ::testing::Test {
  static constexpr int images = 9;
  test::TempDir folder;
  AnnotatedImages annotated;
  std::vector<Image> pixels;

  void SetUp() override {
    if (encode_png(constant(1, 1, 1, 0)).empty()) GTEST_SKIP() << "no libpng";
    annotated = {.source = "labels.json",
                 .folder = folder.path(),
                 .class_names = {"red", "green", "blue"},
                 .category_ids = {1, 2, 3}};
    for (int i = 0; i < images; ++i) {
      const int height = 70 + 9 * i, width = 150 - 8 * i;
      Image image = constant(height, width, 3, 0);
      AnnotatedImage entry{.file = join_text(i, ".png"), .id = i, .width = width, .height = height};
      entry.first_box = static_cast<std::int64_t>(annotated.boxes.size());
      entry.boxes = i == 4 ? 0 : 1 + i % 2;
      for (int b = 0; b < entry.boxes; ++b) {
        const int left = 3 + 30 * b + 2 * i, top = 4 + 25 * b + i, w = 22 + i, h = 30 - i, label = (i + b) % 3;
        for (int y = top; y < top + h; ++y)
          for (int x = left; x < left + w; ++x) image.row(y)[3 * x + label] = 255;
        BoxAnnotation box = annotation({1.0 * left, 1.0 * top, 1.0 * left + w, 1.0 * top + h}, i == 7);
        box.label = label, box.area = 0.5 * w * h, box.ignored = i == 5;
        annotated.boxes.push_back(box);
      }
      write_png(folder / entry.file, image);
      pixels.push_back(std::move(image));
      annotated.images.push_back(std::move(entry));
    }
  }
  std::shared_ptr<const BoxDataset> dataset() const { return std::make_shared<BoxDataset>(annotated, 1 << 28); }
  static Transforms transforms(const TransformOptions& options) { return Transforms({0, 0, 3}, options, true); }
  Batch batch_of(const TransformOptions& options, std::uint64_t seed = 0, std::int64_t first_batch = 0) const {
    Loader loader(dataset(), transforms(options),
                  {.batch_size = images, .workers = 0, .seed = seed, .dtype = DType::u8, .first_batch = first_batch});
    return loader.next();
  }
};

/// Each bright pixel lies in a box of its colour, and bright pixels touch all sides of each box that is not cut.
void expect_boxes_around_pixels(const Batch& batch, int bright, double near) {
  const int side = static_cast<int>(batch["images"].dim(1));
  const float* box = batch["boxes"].data<const float>();
  const std::int64_t* label = batch["classes"].data<const std::int64_t>();
  for (std::int64_t row = 0; row < batch.size(); ++row) {
    const std::uint8_t* const pixel = batch["images"].data<const std::uint8_t>() + row * side * side * 3;
    const std::int64_t count = batch["box_counts"].data<const std::int64_t>()[row];
    std::vector<Corners> around(static_cast<std::size_t>(count), {1e9, 1e9, -1e9, -1e9});
    for (int y = 0; y < side; ++y)
      for (int x = 0; x < side; ++x)
        for (int c = 0; c < 3; ++c) {
          if (pixel[(y * side + x) * 3 + c] <= bright) continue;
          bool is_inside = false;
          for (std::int64_t b = 0; b < count; ++b) {
            const float* const at = box + 4 * b;
            if (label[b] != c || x + 0.5 < at[0] - 1 || x + 0.5 > at[2] + 1 || y + 0.5 < at[1] - 1 ||
                y + 0.5 > at[3] + 1)
              continue;
            is_inside = true;
            Corners& seen = around[static_cast<std::size_t>(b)];
            seen = {std::min(seen[0], 1.0 * x), std::min(seen[1], 1.0 * y), std::max(seen[2], x + 1.0),
                    std::max(seen[3], y + 1.0)};
          }
          ASSERT_TRUE(is_inside) << "row " << row << ", pixel " << x << ", " << y << " of colour " << c;
        }
    for (std::int64_t b = 0; b < count; ++b) {
      const float* const at = box + 4 * b;
      const bool is_cut = at[0] < 1 || at[1] < 1 || at[2] > side - 1 || at[3] > side - 1;
      if (is_cut || at[2] - at[0] < 4 || at[3] - at[1] < 4) continue;
      for (std::size_t i = 0; i < 4; ++i)
        EXPECT_NEAR(around[static_cast<std::size_t>(b)][i], at[i], near) << "row " << row << ", box " << b;
    }
    box += 4 * count, label += count;
  }
}

TransformOptions plain(int side, Fit fit = Fit::pad) {
  TransformOptions options{.image_size = side, .fit = fit};
  options.boxes.min_visibility = 0;  // so that no bright pixel loses its box
  return options;
}

TEST_F(BoxMoves, BoxesAreAroundTheirPixels) {
  std::vector<std::pair<const char*, std::function<void(TransformOptions&)>>> moves{
      {"nothing", [](TransformOptions&) {}},
      {"flip", [](TransformOptions& o) { o.horizontal_flip = true; }},
      {"stretch", [](TransformOptions& o) { o.fit = Fit::stretch; }},
      {"expand", [](TransformOptions& o) { o.boxes.expand = 2.5, o.boxes.expand_probability = 1; }},
      {"scale_jitter",
       [](TransformOptions& o) {
         o.boxes.scale_jitter = {0.6, 1.8};
       }},
      {"affine", [](TransformOptions& o) { o.boxes.affine = strong; }},
      {"mosaic", [](TransformOptions& o) { o.boxes.mosaic = 1, o.horizontal_flip = true; }},
      {"mosaic and affine", [](TransformOptions& o) { o.boxes.mosaic = 1, o.boxes.affine = strong; }},
      {"mixup", [](TransformOptions& o) { o.boxes.mixup = 1; }},
      {"all but crops",
       [](TransformOptions& o) {
         o.boxes = {.expand = 1.5, .scale_jitter = {0.7, 1.5}, .affine = strong, .mosaic = 0.5, .mixup = 0.5};
         o.boxes.min_visibility = 0, o.horizontal_flip = true;
       }},
  };
  for (const auto& [name, change] : moves) {
    SCOPED_TRACE(name);
    TransformOptions options = plain(101);
    change(options);
    const bool blends = options.boxes.mixup > 0;
    for (std::uint64_t seed = 0; seed < 12 && !HasFatalFailure(); ++seed) {
      SCOPED_TRACE(seed);
      const Batch batch = batch_of(options, seed);
      // Where all is blended, an edge is at a quarter of white; where some is not, its edge there lies a bit outside,
      // and another box of the colour may lie beside it.
      expect_boxes_around_pixels(batch, blends ? 64 : 127,
                                 options.boxes.affine.rotation > 0 ? 2.6
                                 : blends                          ? 1.51
                                                                   : 1.3);
      EXPECT_GT(batch["boxes"].dim(0), 0);
    }
  }
}

TEST_F(BoxMoves, CroppedBoxesAreAroundTheirPixels) {
  TransformOptions options = plain(101, Fit::stretch);
  options.boxes.iou_crop = true;
  std::set<std::int64_t> counts;
  for (std::uint64_t seed = 0; seed < 40; ++seed) {
    const Batch batch = batch_of(options, seed);
    counts.insert(batch["boxes"].dim(0));
    const double* const maps = batch["image_maps"].data<const double>();
    const float* box = batch["boxes"].data<const float>();
    const double* area = batch["box_areas"].data<const double>();
    for (std::int64_t row = 0; row < batch.size(); ++row) {
      const auto truth = annotated.boxes_of(static_cast<std::size_t>(batch.samples[static_cast<std::size_t>(row)]));
      // Of the true boxes those are there whose centre is, in their order, cut to the input.
      const double* const map = maps + 4 * row;
      std::int64_t expected = 0;
      for (const BoxAnnotation& from : truth) {
        const auto& at = from.corners;
        const Corners to{at[0] * map[0] + map[2], at[1] * map[1] + map[3], at[2] * map[0] + map[2],
                         at[3] * map[1] + map[3]};
        const double x = (to[0] + to[2]) / 2, y = (to[1] + to[3]) / 2;
        const Corners cut{std::max(to[0], 0.0), std::max(to[1], 0.0), std::min(to[2], 101.0), std::min(to[3], 101.0)};
        const bool stays =
            from.crowd || from.ignored ? cut[2] > cut[0] && cut[3] > cut[1] : x > 0 && x < 101 && y > 0 && y < 101;
        if (!stays) continue;
        for (std::size_t i = 0; i < 4; ++i) ASSERT_NEAR(box[i], cut[i], 1e-4);
        const double share = (cut[2] - cut[0]) * (cut[3] - cut[1]) / ((to[2] - to[0]) * (to[3] - to[1]));
        EXPECT_NEAR(*area, from.area * share, 1e-6 * from.area);
        ++expected, box += 4, ++area;
      }
      ASSERT_EQ(batch["box_counts"].data<const std::int64_t>()[row], expected) << "seed " << seed << ", row " << row;
    }
  }
  EXPECT_GT(counts.size(), 2u) << "some boxes are cut off";
}

TEST_F(BoxMoves, HiddenBoxesAreDropped) {
  TransformOptions options = plain(64);
  options.boxes.scale_jitter = {2, 2};
  std::int64_t all = 0, half = 0;
  for (std::uint64_t seed = 0; seed < 10; ++seed) {
    options.boxes.min_visibility = 0;
    const Batch whole = batch_of(options, seed);
    options.boxes.min_visibility = 0.5;
    const Batch visible = batch_of(options, seed);
    all += whole["boxes"].dim(0), half += visible["boxes"].dim(0);
    EXPECT_EQ(whole["images"].to_doubles(), visible["images"].to_doubles());
    const double* area = visible["box_areas"].data<const double>();
    const std::uint8_t* flags = visible["box_flags"].data<const std::uint8_t>();
    for (std::int64_t row = 0; row < visible.size(); ++row)
      for (std::int64_t i = 0; i < visible["box_counts"].data<const std::int64_t>()[row]; ++i, ++area, ++flags) {
        const auto sample = static_cast<std::size_t>(visible.samples[static_cast<std::size_t>(row)]);
        const double least = 0.5 * annotated.boxes_of(sample)[0].area;
        EXPECT_TRUE(*flags != 0 || *area > 0.99 * least || annotated.images[sample].boxes > 1);
      }
  }
  EXPECT_LT(half, all);
  EXPECT_GT(half, all / 4);
}

TEST_F(BoxMoves, EvaluationHasTheAreasOfTheLabels) {
  for (const Fit fit : {Fit::pad, Fit::stretch}) {
    TransformOptions options = plain(77, fit);
    options.horizontal_flip = true, options.boxes = {.iou_crop = true, .mosaic = 1, .mixup = 1};
    Loader loader(dataset(), Transforms({0, 0, 3}, options, false),
                  {.batch_size = images, .workers = 0, .dtype = DType::u8});
    const Batch batch = loader.next();
    ASSERT_EQ(batch["box_areas"].size(), static_cast<std::int64_t>(annotated.boxes.size()));
    for (std::size_t i = 0; i < annotated.boxes.size(); ++i) {
      EXPECT_EQ(batch["box_areas"].data<const double>()[i], annotated.boxes[i].area) << "to the bit";
      EXPECT_EQ(batch["box_flags"].data<const std::uint8_t>()[i],
                (annotated.boxes[i].crowd ? 1 : 0) + (annotated.boxes[i].ignored ? 2 : 0));
    }
    expect_boxes_around_pixels(batch, 127, 1.3);
  }
}

/// An image that is fitted to a square of `side` pixels, as its longer side says.
Image slow_fitted(const Image& image, double factor, int side) {
  const double ratio = 1.0 * side / std::max(image.height, image.width);
  Image result;
  const int rows = std::max(static_cast<int>(std::lround(std::lround(image.height * ratio) * factor)), 1),
            columns = std::max(static_cast<int>(std::lround(std::lround(image.width * ratio) * factor)), 1);
  resize(image, {0, 0, image.height, image.width}, rows, columns, result);
  return result;
}

void paste(const Image& image, int top, int left, Image& canvas) {
  for (int y = 0; y < image.height; ++y)
    for (int x = 0; x < image.width; ++x) {
      if (top + y < 0 || top + y >= canvas.height || left + x < 0 || left + x >= canvas.width) continue;
      std::copy_n(image.row(y) + 3 * x, 3, canvas.row(top + y) + 3 * (left + x));
    }
}

/// The boxes of a row, with their areas.
std::vector<std::array<double, 5>> boxes_of_row(const Batch& batch, std::int64_t row) {
  std::int64_t first = 0;
  for (std::int64_t i = 0; i < row; ++i) first += batch["box_counts"].data<const std::int64_t>()[i];
  std::vector<std::array<double, 5>> boxes(
      static_cast<std::size_t>(batch["box_counts"].data<const std::int64_t>()[row]));
  for (std::size_t b = 0; b < boxes.size(); ++b) {
    for (std::size_t i = 0; i < 4; ++i)
      boxes[b][i] = batch["boxes"].data<const float>()[4 * (static_cast<std::size_t>(first) + b) + i];
    boxes[b][4] = batch["box_areas"].data<const double>()[static_cast<std::size_t>(first) + b];
  }
  return boxes;
}

struct Slow {
  Image image;
  std::vector<std::array<double, 5>> boxes;

  /// Adds the boxes of an image that was resized to `resized` and put at (top, left).
  void add(const AnnotatedImages& annotated, std::int64_t sample, const Image& resized, int top, int left,
           bool mirrored, double least) {
    const AnnotatedImage& from = annotated.images[static_cast<std::size_t>(sample)];
    const double sx = 1.0 * resized.width / from.width, sy = 1.0 * resized.height / from.height;
    for (const BoxAnnotation& box : annotated.boxes_of(static_cast<std::size_t>(sample))) {
      double x0 = box.corners[0] * sx, x1 = box.corners[2] * sx;
      if (mirrored) x0 = resized.width - x0, x1 = resized.width - x1, std::swap(x0, x1);
      const double whole = (x1 - x0) * (box.corners[3] - box.corners[1]) * sy;
      x0 = std::max(x0 + left, 0.0), x1 = std::min(x1 + left, 1.0 * image.width);
      const double y0 = std::max(box.corners[1] * sy + top, 0.0),
                   y1 = std::min(box.corners[3] * sy + top, 1.0 * image.height);
      if (!(x1 > x0 && y1 > y0)) continue;
      const double share = (x1 - x0) * (y1 - y0) / whole;
      if (share < least && !box.crowd && !box.ignored) continue;
      boxes.push_back({x0, y0, x1, y1, box.area * sx * sy * share});
    }
  }
};

void expect_row(const Batch& batch, std::int64_t row, const Slow& expected) {
  const int side = static_cast<int>(batch["images"].dim(1));
  const std::uint8_t* const pixels = batch["images"].data<const std::uint8_t>() + row * side * side * 3;
  ASSERT_EQ(std::vector<std::uint8_t>(pixels, pixels + side * side * 3), expected.image.pixels) << "row " << row;
  const auto boxes = boxes_of_row(batch, row);
  ASSERT_EQ(boxes.size(), expected.boxes.size()) << "row " << row;
  for (std::size_t b = 0; b < boxes.size(); ++b)
    for (std::size_t i = 0; i < 5; ++i) EXPECT_NEAR(boxes[b][i], expected.boxes[b][i], 1e-4) << "row " << row;
  EXPECT_EQ(batch["image_sizes"].data<const std::int64_t>()[2 * row], side) << "the input is the image";
  EXPECT_EQ(batch["image_maps"].data<const double>()[4 * row], 1);
}

TEST_F(BoxMoves, MosaicsAreThoseOfASlowReference) {
  constexpr int side = 52;
  TransformOptions options = plain(side);
  options.boxes.mosaic = 1, options.horizontal_flip = true, options.boxes.min_visibility = 0.2;
  options.fill = 0.5;
  for (std::uint64_t seed = 0; seed < 6; ++seed) {
    const Batch batch = batch_of(options, seed);
    for (std::int64_t row = 0; row < images; ++row) {
      Random random = random_of(seed, Purpose::augment, 0, static_cast<std::uint32_t>(row));
      random.uniform();  // that there is a mosaic
      const int x = side / 2 + static_cast<int>(random.below(side + 1)),
                y = side / 2 + static_cast<int>(random.below(side + 1));
      std::array<std::int64_t, 4> samples{row};
      for (std::size_t i = 1; i < 4; ++i) samples[i] = static_cast<std::int64_t>(random.below(images));
      const bool mirrored = random.below(2) == 1;
      // All of it, of which the middle is cut out.
      Image canvas = constant(2 * side, 2 * side, 3, 128);
      Slow expected{constant(side, side, 3, 0), {}};
      for (std::size_t i = 0; i < 4; ++i) {
        const Image tile = slow_fitted(pixels[static_cast<std::size_t>(samples[i])], 1, side);
        const int top = i < 2 ? y - tile.height : y, left = i % 2 == 0 ? x - tile.width : x;
        paste(tile, top, left, canvas);
        expected.add(annotated, samples[i], tile, top - side / 2, left - side / 2, false, 0.2);
      }
      crop(canvas, {side / 2, side / 2, side, side}, 0, expected.image);
      if (mirrored) {
        flip_horizontally(expected.image);
        for (auto& box : expected.boxes) box = {side - box[2], box[1], side - box[0], box[3], box[4]};
      }
      expect_row(batch, row, expected);
    }
  }
}

TEST_F(BoxMoves, MixupsAreThoseOfASlowReference) {
  constexpr int side = 60;
  TransformOptions options = plain(side);
  options.boxes.mixup = 1, options.boxes.min_visibility = 0.2;
  options.fill = 0.5;
  for (std::uint64_t seed = 0; seed < 6; ++seed) {
    const Batch batch = batch_of(options, seed);
    for (std::int64_t row = 0; row < images; ++row) {
      if (row == 4) {
        EXPECT_EQ(batch["image_sizes"].data<const std::int64_t>()[2 * row], pixels[4].height)
            << "without boxes it stays alone";
        continue;
      }
      Random random = random_of(seed, Purpose::augment, 0, static_cast<std::uint32_t>(row));
      random.uniform();  // that another image is blended in
      auto partner = static_cast<std::int64_t>(random.below(images));
      while (partner == 4) partner = static_cast<std::int64_t>(random.below(images));
      const bool mirrored = random.below(2) == 1;
      Image other = slow_fitted(pixels[static_cast<std::size_t>(partner)], random.uniform(0.5, 1.5), side);
      const auto place = [&](int extent) {
        const int spare = std::abs(side - extent),
                  at = static_cast<int>(random.below(static_cast<std::uint64_t>(spare) + 1));
        return extent > side ? -at : at;
      };
      const int top = place(other.height);
      int left = place(other.width);
      if (mirrored) left = side - left - other.width, flip_horizontally(other);
      const Image fitted = slow_fitted(pixels[static_cast<std::size_t>(row)], 1, side);
      Slow expected{constant(side, side, 3, 128), {}};
      paste(fitted, (side - fitted.height) / 2, (side - fitted.width) / 2, expected.image);
      expected.add(annotated, row, fitted, (side - fitted.height) / 2, (side - fitted.width) / 2, false, 0.2);
      Image blended = constant(side, side, 3, 128);
      paste(other, top, left, blended);
      expected.add(annotated, partner, other, top, left, mirrored, 0.2);
      for (std::size_t i = 0; i < blended.pixels.size(); ++i)
        expected.image.pixels[i] =
            static_cast<std::uint8_t>(std::lround((expected.image.pixels[i] + blended.pixels[i]) / 2.0));
      expect_row(batch, row, expected);
    }
  }
}

TransformOptions everything(int side) {
  TransformOptions options = plain(side);
  options.horizontal_flip = true, options.color_jitter = {0.4, 0.4, 0.4, 0.1};
  options.boxes = {
      .iou_crop = true, .expand = 2, .affine = {.rotation = 10, .scale = {0.7, 1.4}}, .mosaic = 0.5, .mixup = 0.5};
  return options;
}

void expect_same(const Batch& a, const Batch& b) {
  ASSERT_EQ(a.samples, b.samples);
  for (const Batch::Named& named : a.tensors())
    ASSERT_EQ(named.tensor.to_doubles(), b[named.name].to_doubles()) << named.name;
}

TEST_F(BoxMoves, AreAFunctionOfSeedEpochAndSample) {
  const auto loader = [&](LoaderOptions how) {
    how.batch_size = 4, how.shuffle = how.drop_last = true, how.seed = 5, how.dtype = DType::u8;
    return Loader(dataset(), transforms(everything(48)), how);
  };
  Loader alone = loader({.workers = 0}), many = loader({.workers = 3}),
         resumed = loader({.workers = 2, .first_batch = 3});
  Loader rank = loader({.workers = 1, .part = {.cuts = 2, .of = 2, .first = 1}});
  for (int i = 0; i < 6; ++i) {
    const Batch batch = alone.next();
    expect_same(batch, many.next());
    if (i >= 3) expect_same(batch, resumed.next());
    expect_same(batch.gather({2, 3}), rank.next());
  }
  const Batch first = batch_of(everything(48), 1), second = batch_of(everything(48), 1, 1);
  EXPECT_NE(first["images"].to_doubles(), second["images"].to_doubles()) << "another epoch";
}

TEST_F(BoxMoves, TheLastBatchesAreNotMixed) {
  TransformOptions mixed = everything(48), closed = mixed;
  mixed.boxes.mosaic = mixed.boxes.mixup = 1;
  closed.boxes.mosaic = closed.boxes.mixup = 0;
  const LoaderOptions how{.batch_size = 3, .workers = 0, .shuffle = true, .dtype = DType::u8};
  LoaderOptions ending = how;
  ending.mixed_batches = 4;
  Loader all(dataset(), transforms(mixed), how), none(dataset(), transforms(closed), how),
      some(dataset(), transforms(mixed), ending);
  for (int i = 0; i < 8; ++i) {
    const Batch a = all.next(), b = none.next(), c = some.next();
    expect_same(c, i < 4 ? a : b);
    EXPECT_NE(a["images"].to_doubles(), b["images"].to_doubles());
  }
}

TEST_F(BoxMoves, ImagesWithoutBoxesGoThroughAll) {
  for (AnnotatedImage& image : annotated.images) image.boxes = 0;
  const Batch batch = batch_of(everything(48));
  EXPECT_EQ(batch["boxes"].shape(), (Shape{0, 4}));
  EXPECT_EQ(batch["box_areas"].shape(), (Shape{0}));
  EXPECT_EQ(batch["box_counts"].to_doubles(), std::vector<double>(images, 0));
}

TEST_F(BoxMoves, BadImagesOfAMosaicAreReplaced) {
  TransformOptions options = plain(48);
  options.boxes.mosaic = options.boxes.mixup = 1;
  folder.write("3.png", {'x'});
  const auto first = [&](int workers, const std::shared_ptr<Quarantine>& quarantine) {
    Loader loader(dataset(), transforms(options),
                  {.batch_size = 4, .workers = workers, .dtype = DType::u8, .quarantine = quarantine});
    std::vector<double> seen;
    for (int i = 0; i < 5; ++i) {
      const Batch batch = loader.next();
      for (const std::int64_t sample : batch.samples) EXPECT_NE(sample, 3);
      for (const Batch::Named& named : batch.tensors())
        for (const double value : named.tensor.to_doubles()) seen.push_back(value);
    }
    return seen;
  };
  const auto quarantine = [&] { return std::make_shared<Quarantine>("train", "labels.json", images, 1); };
  const auto alone = quarantine(), many = quarantine();
  EXPECT_EQ(first(0, alone), first(3, many));
  ASSERT_EQ(alone->count(), 1);
  EXPECT_EQ(alone->delivered()[0].sample, 3);
  EXPECT_TRUE(contains(error_message<DataError>([&] { (void)first(0, nullptr); }), "3.png"));
  folder.write("6.png", {'x'});
  EXPECT_TRUE(contains(error_message<DataError>([&] { (void)first(0, quarantine()); }), "bad"));
}

TEST_F(BoxMoves, RefuseWhatContradicts) {
  const auto refusal = [&](const std::string& augment) {
    return error_message<ConfigError>([&] {
      (void)make_data(parse_json(
          R"({"type": "coco", "train": {"images": "x", "labels": "y"}, "augment": )" + augment + "}", "test"));
    });
  };
  const std::pair<const char*, const char*> faults[] = {
      {R"({"mosaic": 1, "iou_crop": true})", "lower mosaic, set close_mosaic, or leave them out"},
      {R"({"close_mosaic": 3})", "neither is on; set one, or leave close_mosaic out"},
      {R"({"scale_jitter": [2, 1]})", "scale_jitter is [least, greatest]"},
      {R"({"affine": {"scale": [2, 1]}})", "scale is [least, greatest]"},
      {R"({"affine": {"rotate": 5}})", "rotation"},
      {R"({"fit": "crop"})", "stretch"},
      {R"({"mosiac": 1})", "mosaic"},
      {R"({"mixup": 8})", "mixup"},
      {R"({"expand": 0.5})", "expand"},
  };
  for (const auto& [augment, part] : faults) EXPECT_TRUE(contains(refusal(augment), part)) << refusal(augment);
  TransformOptions options = plain(48);
  options.boxes.mosaic = 2;
  EXPECT_THROW(batch_of(options), ConfigError);
  options = plain(48);
  options.boxes.affine.scale = {0, 1};
  EXPECT_THROW(batch_of(options), ConfigError);
  options = plain(48, Fit::crop);
  EXPECT_THROW(batch_of(options), ConfigError);
  options = plain(48);
  options.boxes.affine.shear = 80;
  EXPECT_THROW(batch_of(options), ConfigError);
  options.boxes.affine.shear = 0, options.boxes.expand = 0.5;
  EXPECT_THROW(batch_of(options), ConfigError);
}

}  // namespace
}  // namespace hearth::data::box_moves_test
