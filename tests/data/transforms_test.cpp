// SPDX-License-Identifier: Apache-2.0
#include "data/transforms/transforms.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "core/build.h"
#include "core/error.h"
#include "data/order.h"
#include "data/source_bytes.h"
#include "data/transforms/resize.h"
#include "data/transforms/resize_kernels.h"
#include "tests/support/error_message.h"
#include "tests/support/places.h"

namespace hearth::data {
namespace {

using test::contains;
using test::error_message;

Image noise(int height, int width, int channels, std::uint64_t seed = 1) {
  Image image;
  image.reshape(height, width, channels);
  Random random(seed, 0);
  for (auto& value : image.pixels) value = static_cast<std::uint8_t>(random.below(256));
  return image;
}

Image constant(int height, int width, int channels, std::uint8_t value) {
  Image image;
  image.reshape(height, width, channels);
  std::fill(image.pixels.begin(), image.pixels.end(), value);
  return image;
}

// The definition in double precision, both axes at once. Weights of an input at a distance from the output's centre, in
// output pixels or, where these are smaller, input pixels; of `area` the part of the input that the output covers.
double weight(ResizeFilter filter, double input, double center, double wide) {
  if (filter == ResizeFilter::area)
    return std::max(0.0, std::min(input + 1, center + wide / 2) - std::max(input, center - wide / 2));
  const double x = std::abs(input + 0.5 - center) / wide;
  if (filter == ResizeFilter::bilinear) return std::max(0.0, 1 - x);
  if (x < 1) return 1.5 * x * x * x - 2.5 * x * x + 1;
  return x < 2 ? -0.5 * x * x * x + 2.5 * x * x - 4 * x + 2 : 0;
}

double resized_value(const Image& image, Box box, int height, int width, int y, int x, int c,
                     ResizeFilter filter = ResizeFilter::bilinear) {
  const double scale_y = static_cast<double>(box.height) / height, scale_x = static_cast<double>(box.width) / width;
  double sum = 0, total = 0;
  for (int i = 0; i < box.height; ++i) {
    const double wy = weight(filter, i, (y + 0.5) * scale_y, std::max(scale_y, 1.0));
    for (int j = 0; j < box.width; ++j) {
      const double w = wy * weight(filter, j, (x + 0.5) * scale_x, std::max(scale_x, 1.0));
      sum += w * image.row(box.top + i)[(box.left + j) * image.channels + c];
      total += w;
    }
  }
  return std::clamp(sum / total, 0.0, 255.0);
}

Region region_of(const Image& image, Box box, int height, int width, Box window, ResizeFilter filter) {
  return region_of_whole(image, [&](int, int) { return Sizing{box, height, width, window, filter}; });
}

TEST(ResizeTest, MatchesItsDefinition) {
  for (const int channels : {1, 2, 3}) {
    const Image image = noise(19, 61, channels);
    for (const auto& [box, height, width] :
         {std::tuple{Box{0, 0, 19, 61}, 7, 9}, std::tuple{Box{3, 5, 11, 50}, 40, 33},
          std::tuple{Box{18, 30, 1, 1}, 4, 4}, std::tuple{Box{0, 0, 19, 61}, 1, 1},
          std::tuple{Box{2, 0, 17, 31}, 17, 10}, std::tuple{Box{2, 3, 17, 56}, 5, 56},
          std::tuple{Box{0, 0, 19, 60}, 19, 120}}) {
      for (const ResizeFilter filter : {ResizeFilter::bilinear, ResizeFilter::bicubic, ResizeFilter::area}) {
        Image result, window;
        resize(image, region_of(image, box, height, width, {0, 0, height, width}, filter), result);
        for (int y = 0; y < height; ++y)
          for (int x = 0; x < width; ++x)
            for (int c = 0; c < channels; ++c) {
              // Rounded to a level once, and to 1/64 of one between the passes.
              ASSERT_NEAR(result.row(y)[x * channels + c], resized_value(image, box, height, width, y, x, c, filter),
                          0.55)
                  << static_cast<int>(filter) << ": " << box.height << " x " << box.width << " to " << height << " x "
                  << width;
            }
        const Box part{height / 3, width / 4, height - height / 3, width / 2 + 1};
        resize(image, region_of(image, box, height, width, part, filter), window);
        Image expected;
        crop(result, part, 0, expected);
        ASSERT_EQ(window, expected);
      }
    }
  }
}

TEST(ResizeTest, IsPillowsWithinALevel) {
  if (!HEARTH_HAS_PNG) GTEST_SKIP() << "this build lacks libpng";
  const std::string folder = test::source_dir() + "/tests/golden/images/";
  const Image image = decode_image(folder + "rgb.png");
  for (const auto& [name, height, width, filter] :
       {std::tuple{"down", 9, 16, ResizeFilter::bilinear}, std::tuple{"up", 41, 50, ResizeFilter::bilinear},
        std::tuple{"mixed", 40, 30, ResizeFilter::bilinear}, std::tuple{"same_width", 10, 37, ResizeFilter::bilinear},
        std::tuple{"cubic_down", 9, 16, ResizeFilter::bicubic},
        std::tuple{"cubic_up", 41, 50, ResizeFilter::bicubic}}) {
    std::vector<std::uint8_t> expected;
    read_bytes(folder + "resize_" + name + ".rgb", expected, small_file);
    Image result;
    resize(image, region_of(image, {0, 0, image.height, image.width}, height, width, {0, 0, height, width}, filter),
           result);
    ASSERT_EQ(result.pixels.size(), expected.size()) << name;
    int most = 0;
    for (std::size_t i = 0; i < expected.size(); ++i)
      most = std::max(most, std::abs(int{expected[i]} - int{result.pixels[i]}));
    EXPECT_LE(most, 1) << name;
  }
}

TEST(ResizeTest, EveryInstructionSetWeighsAlike) {
  Random random(5, 0);
  const auto below = [&](int count) { return static_cast<int>(random.below(static_cast<std::uint64_t>(count))); };
  for (const int count : {1, 3, 31, 32, 33, 63, 64, 65, 100, 300}) {
    for (int taps = 1; taps <= 7; ++taps) {
      const Image rows = noise(taps, count, 1, static_cast<std::uint64_t>(count));
      std::vector<std::int16_t> weights(8), out(static_cast<std::size_t>(count));
      for (int k = 0; k < taps; ++k)
        weights[static_cast<std::size_t>(k)] = static_cast<std::int16_t>(below(16384) - 2000);
      kernels::weigh_rows(rows.pixels.data(), static_cast<std::size_t>(count), weights.data(), taps, 8,
                          static_cast<std::size_t>(count), out.data());
      for (int i = 0; i < count; ++i) {
        int sum = 128;
        for (int k = 0; k < taps; ++k) sum += rows.row(k)[i] * weights[static_cast<std::size_t>(k)];
        ASSERT_EQ(out[static_cast<std::size_t>(i)], std::clamp(sum >> 8, -32768, 32767)) << count << ", " << taps;
      }
      for (const int channels : {1, 3}) {
        const int pairs = (taps + 1) / 2, width = 11, columns = 40;
        std::vector<std::int16_t> row(static_cast<std::size_t>((columns + 2 * pairs) * channels + 16));
        for (auto& value : row) value = static_cast<std::int16_t>(below(20'000) - 1000);
        std::vector<int> first;
        std::vector<std::int16_t> values;
        for (int x = 0; x < width; ++x) {
          first.push_back(below(columns - taps + 1));
          for (int k = 0; k < 2 * pairs; ++k)
            values.push_back(static_cast<std::int16_t>(k < taps ? below(9000) - 1000 : 0));
        }
        std::vector<std::uint8_t> made(static_cast<std::size_t>(width * channels));
        kernels::weigh_columns(row.data(), {first.data(), values.data(), pairs}, 20, width, channels, made.data());
        for (int i = 0; i < width * channels; ++i) {
          int sum = 1 << 19;
          const auto x = static_cast<std::size_t>(i / channels);
          for (int k = 0; k < taps; ++k)
            sum += row[static_cast<std::size_t>((first[x] + k) * channels + i % channels)] *
                   values[x * static_cast<std::size_t>(2 * pairs) + static_cast<std::size_t>(k)];
          ASSERT_EQ(made[static_cast<std::size_t>(i)], std::clamp(sum >> 20, 0, 255)) << taps << ", " << channels;
        }
      }
    }
  }
}

TEST(ResizeTest, EightRowsAtOnceAreEachByItself) {
  for (const int channels : {1, 2, 3})
    for (const int width : {10, 11, 12, 40, 200}) {
      const Image image = noise(50, width, channels);
      Image all, row, expected;
      const Box box{1, 0, 48, width};
      resize(image, region_of(image, box, 21, 19, {0, 0, 21, 19}, ResizeFilter::bilinear), all);
      for (int y = 0; y < 21; ++y) {
        resize(image, region_of(image, box, 21, 19, {y, 0, 1, 19}, ResizeFilter::bilinear), row);
        crop(all, {y, 0, 1, 19}, 0, expected);
        ASSERT_EQ(row, expected) << width << " x " << channels << ", row " << y;
      }
    }
}

TEST(ResizeTest, ConstantsStayConstantAndSizesStayExact) {
  for (const int value : {0, 1, 127, 254, 255}) {
    const Image image = constant(13, 17, 3, static_cast<std::uint8_t>(value));
    Image result;
    resize(image, {0, 0, 13, 17}, 224, 5, result);
    EXPECT_EQ(result, constant(224, 5, 3, static_cast<std::uint8_t>(value)));
  }
  const Image image = noise(8, 9, 3);
  Image result;
  resize(image, {0, 0, 8, 9}, 8, 9, result);
  EXPECT_EQ(result, image);
}

TEST(ResizeTest, RefusesBoxesOutside) {
  const Image image = noise(8, 9, 3);
  Image result;
  for (const Box box : {Box{0, 0, 9, 9}, Box{-1, 0, 4, 4}, Box{0, 6, 4, 4}, Box{0, 0, 0, 4}, Box{7, 8, 1, 2}}) {
    EXPECT_TRUE(
        contains(error_message<ShapeError>([&] { resize(image, box, 4, 4, result); }), "leaves the image of 8 x 9"));
  }
  EXPECT_THROW(resize(image, {0, 0, 8, 9}, 0, 4, result), ShapeError);
}

TEST(CropTest, OutsideIsFilled) {
  const Image image = noise(4, 5, 2);
  Image result;
  crop(image, {-1, -2, 6, 9}, 7, result);
  for (int y = 0; y < 6; ++y) {
    for (int x = 0; x < 9; ++x) {
      const bool inside = y >= 1 && y < 5 && x >= 2 && x < 7;
      for (int c = 0; c < 2; ++c) {
        ASSERT_EQ(result.row(y)[2 * x + c], inside ? image.row(y - 1)[2 * (x - 2) + c] : 7);
      }
    }
  }
  crop(image, {0, 50, 2, 2}, 9, result);
  EXPECT_EQ(result, constant(2, 2, 2, 9));
  crop(image, {0, -50, 2, 2}, 9, result);
  EXPECT_EQ(result, constant(2, 2, 2, 9));
}

TEST(FlipTest, MirrorsAndTwiceIsNothing) {
  for (const int width : {1, 2, 5, 8}) {
    const Image image = noise(3, width, 3);
    Image flipped = image;
    flip_horizontally(flipped);
    for (int x = 0; x < width; ++x) {
      EXPECT_EQ(flipped.row(1)[3 * x + 2], image.row(1)[3 * (width - 1 - x) + 2]);
    }
    flip_horizontally(flipped);
    EXPECT_EQ(flipped, image);
  }
}

TEST(ResizedCropTest, BoxesKeepTheirBoundsAndSpread) {
  const RandomResizedCrop options;
  double least = 1, most = 0, mean = 0;
  constexpr int draws = 4000;
  for (int i = 0; i < draws; ++i) {
    Random random(5, 0, static_cast<std::uint32_t>(i));
    const Box box = draw_resized_crop(100, 120, options, random);
    ASSERT_TRUE(box.top >= 0 && box.left >= 0 && box.height >= 1 && box.width >= 1);
    ASSERT_TRUE(box.top + box.height <= 100 && box.left + box.width <= 120);
    const double ratio = static_cast<double>(box.width) / box.height;
    ASSERT_TRUE(ratio > 0.7 && ratio < 1.4) << ratio;
    const double share = box.height * box.width / 12000.0;
    least = std::min(least, share);
    most = std::max(most, share);
    mean += share / draws;
  }
  EXPECT_LT(least, 0.09);
  EXPECT_GT(most, 0.9);
  EXPECT_NEAR(mean, 0.5, 0.05);
}

TEST(ResizedCropTest, LongImagesFallBackToTheCentre) {
  Random random(5, 0);
  const Box box = draw_resized_crop(10, 1000, {.scale_min = 0.9}, random);
  EXPECT_EQ(box, (Box{0, 493, 10, 13}));
}

TEST(ColorJitterTest, DarkensBrightensAndGreys) {
  // With one side of the range closed off, what must hold for every draw: the mean moves with the factor's bounds.
  const Image image = constant(2, 2, 3, 100);
  int low = 255, high = 0;
  for (std::uint32_t i = 0; i < 200; ++i) {
    Image changed = image;
    Random random(1, 1, i);
    jitter_color(changed, {.brightness = 0.4}, random);
    low = std::min<int>(low, changed.pixels[0]);
    high = std::max<int>(high, changed.pixels[0]);
  }
  EXPECT_GE(low, 60);
  EXPECT_LT(low, 64);
  EXPECT_LE(high, 140);
  EXPECT_GT(high, 136);
  Image same = image;
  Random random(1, 1);
  jitter_color(same, {.contrast = 0.9, .saturation = 0.9, .hue = 0.5}, random);
  EXPECT_EQ(same, image) << "a grey constant has no contrast, saturation or hue";
}

TEST(ColorJitterTest, HueKeepsLightestAndDarkestChannel) {
  const Image image = noise(8, 8, 3);
  Image changed = image;
  Random random(3, 3);
  jitter_color(changed, {.hue = 0.5}, random);
  EXPECT_NE(changed, image);
  for (std::size_t i = 0; i < image.pixels.size(); i += 3) {
    const auto before = std::minmax({image.pixels[i], image.pixels[i + 1], image.pixels[i + 2]});
    const auto after = std::minmax({changed.pixels[i], changed.pixels[i + 1], changed.pixels[i + 2]});
    EXPECT_EQ(before, after);
  }
  Image two = noise(2, 2, 2);
  EXPECT_THROW(jitter_color(two, {.hue = 0.1}, random), ShapeError);
}

TEST(NormalizerTest, IsTheRoundedExactValueInEveryType) {
  const std::vector<double> mean{0.485, 0.456, 0.406}, std{0.229, 0.224, 0.225};
  Image image = noise(7, 5, 3);
  std::vector<float> wide(image.pixels.size());
  std::vector<bf16> narrow(image.pixels.size());
  std::vector<f16> half(image.pixels.size());
  const Normalizer normalizer(3, mean, std);
  normalizer.apply(image, wide.data());
  normalizer.apply(image, narrow.data());
  normalizer.apply(image, half.data());
  for (std::size_t i = 0; i < wide.size(); ++i) {
    const auto exact = static_cast<float>((image.pixels[i] / 255.0 - mean[i % 3]) / std[i % 3]);
    ASSERT_EQ(wide[i], exact);
    ASSERT_EQ(narrow[i].bits, bf16(exact).bits);
    ASSERT_EQ(half[i].bits, f16(exact).bits);
  }
  EXPECT_THROW(Normalizer(3, {0.5, 0.5}, {}), ConfigError);
  EXPECT_THROW(Normalizer(3, {}, {0.0}), ConfigError);
  EXPECT_THROW(Normalizer(1, {}, {}).apply(image, wide.data()), ShapeError);
}

TEST(TransformsTest, EvaluationIgnoresEverythingRandom) {
  TransformOptions options{.padded_crop = 3, .horizontal_flip = true, .color_jitter = {.brightness = 0.5}};
  options.erasing.probability = 1;
  const Transforms evaluation({9, 9, 3}, options, false), training({9, 9, 3}, options, true);
  const Image image = noise(9, 9, 3);
  int changed = 0;
  for (std::uint32_t i = 0; i < 20; ++i) {
    Image a = image, b = image, scratch;
    Random random(1, 1, i), again(1, 1, i);
    evaluation.augment(a, scratch, random);
    EXPECT_EQ(a, image);
    training.augment(b, scratch, again);
    changed += b == image ? 0 : 1;
  }
  EXPECT_GT(changed, 15);
}

TEST(TransformsTest, PaddedCropReachesEveryOffset) {
  const Transforms training({4, 4, 1}, {.padded_crop = 1}, true);
  const Image image = noise(4, 4, 1);
  std::vector<int> seen(9);
  for (std::uint32_t i = 0; i < 900; ++i) {
    Image shifted = image, scratch, expected;
    Random random(2, 0, i);
    training.augment(shifted, scratch, random);
    for (int place = 0; place < 9; ++place) {
      crop(image, {place / 3 - 1, place % 3 - 1, 4, 4}, 0, expected);
      seen[static_cast<std::size_t>(place)] += expected == shifted ? 1 : 0;
    }
  }
  for (const int count : seen) EXPECT_NEAR(count, 100, 40);
}

void resize_and_center(const Image& source, int side, int size, Image& result) {
  const Region region =
      region_of_whole(source, [&](int height, int width) { return centre_of(height, width, side, size); });
  resize(source, region, result);
}

TEST(TransformsTest, CentreOfTheResizedShorterSide) {
  TransformOptions options{.image_size = 8, .eval_crop = 0.5, .random_resized_crop = true};
  const Transforms evaluation({0, 0, 3}, options, false);
  const Image image = noise(32, 48, 3);
  Image result = image, scratch, resized, expected;
  Random random(0, 0);
  evaluation.augment(result, scratch, random);
  resize(image, {0, 0, 32, 48}, 16, 24, resized);
  crop(resized, {4, 8, 8, 8}, 0, expected);
  EXPECT_EQ(result, expected);
}

TEST(TransformsTest, TheCentreLiesWhereTorchvisionHasIt) {
  // int(round((extent - size) / 2.0)) of torchvision's center_crop, by Python: halves go to the even side.
  const std::pair<int, int> tops[] = {{0, 0}, {1, 0}, {2, 1}, {3, 2}, {4, 2}, {5, 2}, {6, 3}, {7, 4}, {9, 4}, {11, 6}};
  for (const auto& [spare, top] : tops) {
    const Image tall = noise(8 + spare, 8, 3);
    Image result, expected;
    resize_and_center(tall, 8, 8, result);
    crop(tall, {top, 0, 8, 8}, 0, expected);
    EXPECT_EQ(result, expected) << spare << " rows to spare";
    const Image wide = noise(8, 8 + spare, 3);
    resize_and_center(wide, 8, 8, result);
    crop(wide, {0, top, 8, 8}, 0, expected);
    EXPECT_EQ(result, expected) << spare << " columns to spare";
  }
}

TEST(TransformsTest, OfALongImageOnlyTheMiddleIsResized) {
  // All of 1 x 2000 pixels at 224 x 448000 would be more than an image may have.
  for (const auto& [height, width] : {std::pair{1, 2000}, std::pair{2000, 1}, std::pair{3, 100'000}}) {
    Image image = constant(height, width, 1, 9), scratch;
    // What lies in the middle is seen, what lies far from it is not.
    const int middle = std::min(height, width) * 5;
    for (int y = 0; y < height; ++y)
      for (int x = 0; x < width; ++x)
        if (std::abs(y - height / 2) < middle && std::abs(x - width / 2) < middle) image.row(y)[x] = 200;
    Random random(0, 0);
    Transforms({0, 0, 1}, {.image_size = 224}, false).augment(image, scratch, random);
    EXPECT_EQ(image, constant(224, 224, 1, 200)) << height << " x " << width;
  }
  // Up to four times as long, nothing is cut off before.
  const Image image = noise(10, 40, 3);
  Image result, resized, expected;
  resize_and_center(image, 16, 8, result);
  resize(image, {0, 0, 10, 40}, 16, 64, resized);
  crop(resized, {4, 28, 8, 8}, 0, expected);
  EXPECT_EQ(result, expected);
  for (const auto& [side, size] : {std::pair{8, 9}, std::pair{8, 0}, std::pair{10'001, 8}})
    EXPECT_THROW(resize_and_center(image, side, size, result), ShapeError) << side << ", " << size;
  EXPECT_THROW(resize_shorter_side(image, {0, 0, 1, 40}, 1 << 30, result), ShapeError);
  EXPECT_THROW(resize_shorter_side(image, {0, 0, 0, 40}, 8, result), ShapeError);
  for (const Fit fit : {Fit::pad, Fit::stretch})
    EXPECT_TRUE(contains(error_message<ConfigError>([&] { Transforms({6, 6, 3}, {.fit = fit}, false); }), "fit: "));
}

TEST(TransformsTest, PaddingShowsTheWholeImage) {
  for (const auto& [height, width, shown_height, shown_width, top, left] :
       {std::tuple{20, 40, 4, 8, 2, 0}, std::tuple{40, 20, 8, 4, 0, 2}, std::tuple{5, 3, 8, 5, 0, 1},
        std::tuple{1, 90, 1, 8, 3, 0}, std::tuple{6, 6, 8, 8, 0, 0}}) {
    const Transforms evaluation({0, 0, 3}, {.image_size = 8, .fit = Fit::pad, .fill = 0.8}, false);
    const Image image = noise(height, width, 3);
    Image result = image, scratch, shown, expected;
    Random random(0, 0);
    evaluation.augment(result, scratch, random);
    resize(image, {0, 0, height, width}, shown_height, shown_width, shown);
    crop(shown, {-top, -left, 8, 8}, 204, expected);
    EXPECT_EQ(result, expected) << height << " x " << width;
  }
}

TEST(TransformsTest, StretchingShowsTheWholeImage) {
  // Of training too, unless that takes random boxes; then of evaluation, whatever eval_crop says.
  for (const bool boxes : {false, true}) {
    const TransformOptions options{
        .image_size = 8, .fit = Fit::stretch, .eval_crop = 0.5, .random_resized_crop = boxes};
    const Image image = noise(20, 40, 3);
    Image expected;
    resize(image, {0, 0, 20, 40}, 8, 8, expected);
    for (const bool training : {false, true}) {
      Image result = image, scratch;
      Random random(0, 0);
      Transforms({0, 0, 3}, options, training).augment(result, scratch, random);
      EXPECT_EQ(result == expected, !(training && boxes));
    }
  }
}

TEST(TransformsTest, WhatLiesOutsideIsFilled) {
  const Image image = constant(6, 6, 3, 100);
  for (const auto& [fill, level] :
       {std::pair{std::optional<double>(), 0}, std::pair{std::optional<double>(0.9), 230}}) {
    const Transforms training({6, 6, 3}, {.padded_crop = 2, .fill = fill}, true);
    int outside = 0;
    for (std::uint32_t i = 0; i < 50; ++i) {
      Image shifted = image, scratch;
      Random random(3, 0, i);
      training.augment(shifted, scratch, random);
      for (const int value : shifted.pixels) {
        ASSERT_TRUE(value == 100 || value == level) << value;
        outside += value == level ? 1 : 0;
      }
    }
    EXPECT_GT(outside, 50 * 3 * 6);
  }
  for (const double fill : {-0.1, 1.5})
    EXPECT_TRUE(contains(error_message<ConfigError>([&] { Transforms({6, 6, 3}, {.fill = fill}, true); }), "fill: "));
}

TEST(TransformsTest, ErasingClearsOneBox) {
  TransformOptions options;
  options.mean = {-1.0};  // so that 0 is no pixel's value
  options.erasing.probability = 1;
  const Transforms training({16, 16, 1}, options, true);
  for (std::uint32_t i = 0; i < 30; ++i) {
    Image image = noise(16, 16, 1), scratch;
    std::vector<float> values(256);
    training.apply(image, scratch, Random(4, 0, i), DType::f32, reinterpret_cast<std::byte*>(values.data()));
    int top = 16, left = 16, bottom = -1, right = -1, zeros = 0;
    for (int p = 0; p < 256; ++p) {
      if (values[static_cast<std::size_t>(p)] != 0) continue;
      ++zeros;
      top = std::min(top, p / 16), bottom = std::max(bottom, p / 16);
      left = std::min(left, p % 16), right = std::max(right, p % 16);
    }
    ASSERT_GT(zeros, 0);
    ASSERT_EQ(zeros, (bottom - top + 1) * (right - left + 1));
    ASSERT_LE(zeros, 100);
  }
}

// Pixels, their normalisation and the box, apart, are what comes out of all steps at once.
TEST(TransformsTest, PixelsAreNormalisedElsewhereToTheSameBits) {
  TransformOptions options{.padded_crop = 2, .horizontal_flip = true, .color_jitter = {0.3, 0.3, 0.3, 0.1}};
  options.mean = {0.4, 0.5, 0.6};
  options.std = {0.3, 0.2, 0.1};
  options.erasing.probability = 0.5;
  const Transforms training({9, 7, 3}, options, true);
  const Normalizer& normalizer = training.normalizer();
  ASSERT_EQ(normalizer.values().size(), 3u * 256u);
  EXPECT_TRUE(training.erases());
  int erased = 0;
  for (std::uint32_t i = 0; i < 40; ++i) {
    const Image image = noise(9, 7, 3);
    Image work = image, scratch;
    std::vector<float> expected(9 * 7 * 3);
    training.apply(work, scratch, Random(4, 0, i), DType::f32, reinterpret_cast<std::byte*>(expected.data()));
    work = image;
    std::vector<std::uint8_t> pixels(expected.size());
    const Box box = training.apply_pixels(work, scratch, Random(4, 0, i), pixels.data());
    erased += box.height > 0 ? 1 : 0;
    for (std::size_t p = 0; p < expected.size(); ++p) {
      const int row = static_cast<int>(p / 21), column = static_cast<int>(p / 3 % 7);
      const bool inside =
          row >= box.top && row < box.top + box.height && column >= box.left && column < box.left + box.width;
      const float value = inside ? 0.0f : normalizer.values()[256 * (p % 3) + pixels[p]];
      ASSERT_EQ(value, expected[p]) << "image " << i << ", element " << p;
    }
  }
  EXPECT_TRUE(erased > 5 && erased < 35) << erased;
  EXPECT_FALSE(Transforms({9, 7, 3}, options, false).erases());
}

TEST(TransformsTest, RefusesOptionsOutOfRange) {
  const auto refused = [](ImageShape shape, const TransformOptions& options) {
    return error_message<ConfigError>([&] { Transforms(shape, options, true); });
  };
  const ImageShape fixed{8, 8, 3};
  EXPECT_TRUE(contains(refused({0, 0, 3}, {}), "set image_size"));
  EXPECT_TRUE(contains(refused(fixed, {.random_resized_crop = true}), "needs image_size"));
  EXPECT_TRUE(contains(refused(fixed, {.image_size = -1}), "-1"));
  EXPECT_TRUE(contains(refused(fixed, {.padded_crop = -2}), "-2"));
  EXPECT_TRUE(contains(refused(fixed, {.color_jitter = {.hue = 0.6}}), "0.6"));
  EXPECT_TRUE(contains(refused(fixed, {.crop = {.scale_min = 0}}), "scale 0"));
  EXPECT_TRUE(contains(refused(fixed, {.mean = {0.1, 0.2}}), "2 means"));
  EXPECT_TRUE(contains(refused({8, 8, 4}, {.color_jitter = {.hue = 0.1}}), "not 4"));
}

}  // namespace
}  // namespace hearth::data
