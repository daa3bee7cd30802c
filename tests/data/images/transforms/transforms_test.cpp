// SPDX-License-Identifier: Apache-2.0
#include "data/images/transforms/transforms.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "core/error.h"
#include "data/images/codecs/decode.h"
#include "data/images/transforms/resize.h"
#include "data/loading/order.h"
#include "tests/data/images/plain_images.h"
#include "tests/support/error_message.h"

namespace hearth::data::transforms_test {
namespace {

using test::contains;
using test::error_message;

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

// Of the arithmetic that replaces the table: images small and large, results at any place, every number of channels.
TEST(NormalizerTest, LargeImagesHaveTheValuesOfTheTable) {
  const std::vector<double> mean{0.485, 0.456, 0.406, 0.5}, std{0.229, 0.224, 0.225, 0.25};
  for (const int channels : {1, 2, 3, 4, 5})
    for (const int side : {3, 9, 160, 264})
      for (const std::size_t offset : {0, 1, 8}) {
        const auto first = [&](const std::vector<double>& of) {
          return channels > 4 ? std::vector<double>{of[0]} : std::vector<double>(of.begin(), of.begin() + channels);
        };
        const Normalizer normalizer(channels, first(mean), first(std));
        const Image image = noise(side, side, channels);
        std::vector<float> made(image.pixels.size() + offset, 7);
        normalizer.apply(image, made.data() + offset);
        for (std::size_t i = 0; i < image.pixels.size(); ++i) {
          const std::size_t channel = i % static_cast<std::size_t>(channels);
          ASSERT_EQ(made[i + offset], normalizer.values()[256 * channel + image.pixels[i]])
              << channels << " channels, side " << side << ", offset " << offset << ", value " << i;
        }
        for (std::size_t i = 0; i < offset; ++i) ASSERT_EQ(made[i], 7);
      }
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
    Random random(4, 0, i);
    training.augment(work, scratch, random);
    const Box box = training.finish_pixels(work, random, pixels.data());
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
}  // namespace hearth::data::transforms_test
