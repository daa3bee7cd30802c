// SPDX-License-Identifier: Apache-2.0
// RandAugment's changes against Pillow's (golden/make_augment.py), and what is drawn.
#include "data/images/transforms/rand_augment.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <set>
#include <string>
#include <vector>

#include "core/build.h"
#include "core/error.h"
#include "data/images/codecs/decode.h"
#include "data/images/transforms/resize.h"
#include "data/images/transforms/transforms.h"
#include "tests/support/error_message.h"
#include "tests/support/places.h"

namespace hearth::data::rand_augment_test {
namespace {

using test::contains;
using test::error_message;

struct Change {
  AugmentOp op;
  double strength;
  int tolerance = 1;  ///< rounded here, cut off there
};

// In the order of make_augment.py.
const Change changes[] = {
    {AugmentOp::auto_contrast, 0, 0}, {AugmentOp::equalize, 0, 0},    {AugmentOp::rotate, 27},
    {AugmentOp::rotate, -13.5},       {AugmentOp::solarize, 100, 0},  {AugmentOp::color, 1.81},
    {AugmentOp::color, 0.3},          {AugmentOp::posterize, 3, 0},   {AugmentOp::contrast, 0.4},
    {AugmentOp::contrast, 1.7},       {AugmentOp::brightness, 1.6},   {AugmentOp::sharpness, 1.9},
    {AugmentOp::sharpness, 0.1},      {AugmentOp::shear_x, 0.27},     {AugmentOp::shear_y, -0.3},
    {AugmentOp::translate_x, 0.405},  {AugmentOp::translate_y, -0.2},
};

Image first_channel(const Image& image) {
  Image one;
  one.reshape(image.height, image.width, 1);
  for (std::size_t i = 0; i < one.pixels.size(); ++i) one.pixels[i] = image.pixels[3 * i];
  return one;
}

TEST(RandAugmentTest, ChangesAreThoseOfPillow) {
  if (!HEARTH_HAS_PNG) GTEST_SKIP() << "this build lacks libpng";
  for (const bool grey : {false, true}) {
    const std::string name = grey ? "grey" : "color";
    Image sheet = decode_image(test::source_dir() + "/tests/golden/augment/" + name + ".png");
    if (grey) sheet = first_channel(sheet);
    const std::vector<std::uint8_t> fill =
        grey ? std::vector<std::uint8_t>{120} : std::vector<std::uint8_t>{120, 60, 200};
    constexpr int count = static_cast<int>(std::size(changes));
    const int height = sheet.height / (count + 1);
    ASSERT_EQ(height * (count + 1), sheet.height);
    Image image, expected, scratch;
    for (int i = 0; i < count; ++i) {
      const Change& change = changes[i];
      crop(sheet, {0, 0, height, sheet.width}, 0, image);
      crop(sheet, {(i + 1) * height, 0, height, sheet.width}, 0, expected);
      apply_augment_op(image, scratch, change.op, change.strength, fill);
      ASSERT_EQ(image.pixels.size(), expected.pixels.size());
      int worst = 0;
      for (std::size_t p = 0; p < image.pixels.size(); ++p)
        worst = std::max(worst, std::abs(image.pixels[p] - expected.pixels[p]));
      EXPECT_LE(worst, change.tolerance) << name << ", change " << i << " of strength " << change.strength;
    }
  }
}

TEST(RandAugmentTest, StrengthsAreThoseOfTimm) {
  const auto strength = [](AugmentOp op, double level, bool increasing = true, bool mirrored = false) {
    return augment_strength(op, level, increasing, mirrored);
  };
  EXPECT_DOUBLE_EQ(strength(AugmentOp::rotate, 9), 27);
  EXPECT_DOUBLE_EQ(strength(AugmentOp::rotate, 9, true, true), -27);
  EXPECT_EQ(strength(AugmentOp::solarize, 9), 256 - 230);
  EXPECT_EQ(strength(AugmentOp::solarize, 9, false), 230);
  EXPECT_EQ(strength(AugmentOp::posterize, 9), 1);
  EXPECT_EQ(strength(AugmentOp::posterize, 9, false), 3);
  // timm keeps no bit there, so that the image becomes one colour.
  EXPECT_EQ(strength(AugmentOp::posterize, 10), 1);
  EXPECT_EQ(strength(AugmentOp::posterize, 2, false), 1);
  for (const AugmentOp op : {AugmentOp::color, AugmentOp::contrast, AugmentOp::brightness, AugmentOp::sharpness}) {
    EXPECT_DOUBLE_EQ(strength(op, 10), 1.9);
    EXPECT_NEAR(strength(op, 10, true, true), 0.1, 1e-15);
    EXPECT_DOUBLE_EQ(strength(op, 5, false), 1.0);
  }
  EXPECT_DOUBLE_EQ(strength(AugmentOp::shear_x, 5), 0.15);
  EXPECT_DOUBLE_EQ(strength(AugmentOp::translate_y, 10, true, true), -0.45);
  EXPECT_EQ(strength(AugmentOp::solarize, 0), 256);
}

Image noise(int height, int width, int channels) {
  Image image;
  image.reshape(height, width, channels);
  Random random(1, 0);
  for (auto& value : image.pixels) value = static_cast<std::uint8_t>(random.below(200));
  return image;
}

TEST(RandAugmentTest, QuartersOfATurnMoveWholePixels) {
  const std::vector<std::uint8_t> fill{1, 2, 3};
  for (const int side : {6, 7, 224}) {
    const Image image = noise(side, side, 3);
    Image turned = image, scratch;
    apply_augment_op(turned, scratch, AugmentOp::rotate, 90, fill);
    for (int y = 0; y < side; ++y)
      for (int x = 0; x < side; ++x)
        ASSERT_EQ(turned.row(y)[3 * x], image.row(x)[3 * (side - 1 - y)]) << y << ", " << x << " of " << side;
    for (const double degrees : {180.0, 90.0}) apply_augment_op(turned, scratch, AugmentOp::rotate, degrees, fill);
    EXPECT_EQ(turned, image);
  }
}

TEST(RandAugmentTest, ChangesThatDoNothing) {
  const Image image = noise(6, 7, 3);
  const std::vector<std::uint8_t> fill{1, 2, 3};
  for (const auto& [op, strength] : {std::pair{AugmentOp::identity, 5.0},
                                     {AugmentOp::rotate, 0.0},
                                     {AugmentOp::shear_x, 0.0},
                                     {AugmentOp::translate_y, 0.0},
                                     {AugmentOp::solarize, 256.0},
                                     {AugmentOp::posterize, 8.0},
                                     {AugmentOp::sharpness, 1.0},
                                     {AugmentOp::contrast, 1.0}}) {
    Image same = image, scratch;
    apply_augment_op(same, scratch, op, strength, fill);
    EXPECT_EQ(same, image) << static_cast<int>(op);
  }
  // One value has nothing to stretch or to spread.
  Image flat = image, scratch;
  std::fill(flat.pixels.begin(), flat.pixels.end(), std::uint8_t{77});
  for (const AugmentOp op : {AugmentOp::auto_contrast, AugmentOp::equalize}) {
    Image same = flat;
    apply_augment_op(same, scratch, op, 0, fill);
    EXPECT_EQ(same, flat);
  }
  Image away = image;
  apply_augment_op(away, scratch, AugmentOp::translate_x, 1, fill);
  for (std::size_t i = 0; i < away.pixels.size(); ++i) ASSERT_EQ(away.pixels[i], i % 3 + 1);
  Image two = noise(2, 2, 2);
  EXPECT_THROW(apply_augment_op(two, scratch, AugmentOp::identity, 0, {0, 0}), ShapeError);
  EXPECT_THROW(apply_augment_op(away, scratch, AugmentOp::identity, 0, {0}), ShapeError);
}

TEST(RandAugmentTest, DrawsEveryChangeAndIsAFunctionOfTheStream) {
  const Image image = noise(24, 24, 3);  // enough pixels for equalize to move some
  const std::vector<std::uint8_t> fill{0, 0, 0};
  const auto augmented = [&](const RandAugment& options, std::uint32_t sample) {
    Image changed = image, scratch;
    Random random(3, 1, sample);
    rand_augment(changed, scratch, options, fill, random);
    return changed;
  };
  std::set<std::string> seen;
  const auto text_of = [](const Image& of) { return std::string(of.pixels.begin(), of.pixels.end()); };
  int same = 0;
  constexpr std::uint32_t draws = 600;
  for (std::uint32_t i = 0; i < draws; ++i) {
    // Without a spread each change has one strength a direction.
    const Image changed = augmented({.ops = 1, .magnitude = 5, .spread = 0, .probability = 1}, i);
    seen.insert(text_of(changed));
    same += changed == image ? 1 : 0;
    ASSERT_EQ(changed, augmented({.ops = 1, .magnitude = 5, .spread = 0, .probability = 1}, i));
    ASSERT_EQ(augmented({.ops = 3, .probability = 0}, i), image);
    ASSERT_EQ(augmented({}, i), image);
  }
  // identity, auto_contrast, equalize, solarize and posterize have one form, nine changes two.
  EXPECT_EQ(seen.size(), 5u + 2 * 9u);
  EXPECT_NEAR(same, draws / 14.0, 5 * std::sqrt(draws / 14.0));
  seen.clear();
  for (std::uint32_t i = 0; i < draws; ++i) seen.insert(text_of(augmented({.ops = 2, .probability = 1}, i)));
  EXPECT_GT(seen.size(), draws / 2);
}

TEST(RandAugmentTest, IsAStepOfTrainingAndFillsWithTheMeanOrAsAsked) {
  TransformOptions options;
  options.mean = {0.2, 0.4, 0.6};
  options.rand_augment = {.ops = 2, .probability = 1};
  const Transforms training({9, 9, 3}, options, true), evaluation({9, 9, 3}, options, false);
  int changed = 0, filled = 0;
  for (std::uint32_t i = 0; i < 40; ++i) {
    Image image = noise(9, 9, 3), kept = image, scratch;
    Random random(5, 0, i), same(5, 0, i);
    training.augment(image, scratch, random);
    evaluation.augment(kept, scratch, same);
    EXPECT_EQ(kept, noise(9, 9, 3));
    changed += image == kept ? 0 : 1;
    for (std::size_t p = 0; p < image.pixels.size(); p += 3)
      filled += image.pixels[p] == 51 && image.pixels[p + 1] == 102 && image.pixels[p + 2] == 153 ? 1 : 0;
  }
  EXPECT_GT(changed, 30);
  EXPECT_GT(filled, 40);
  // One change of a flat image leaves it flat, but for what moves in.
  options.fill = 1;
  options.rand_augment.ops = 1;
  int white = 0;
  for (std::uint32_t i = 0; i < 40; ++i) {
    Image image = noise(9, 9, 3), scratch;
    std::fill(image.pixels.begin(), image.pixels.end(), std::uint8_t{100});
    Random random(5, 0, i);
    Transforms({9, 9, 3}, options, true).augment(image, scratch, random);
    for (const std::uint8_t value : image.pixels) white += value == 255 ? 1 : 0;
  }
  EXPECT_GT(white, 100);
}

TEST(RandAugmentTest, RefusesOptionsOutOfRange) {
  const auto refused = [](const RandAugment& augment, int channels = 3) {
    TransformOptions options;
    options.rand_augment = augment;
    return error_message<ConfigError>([&] { Transforms({8, 8, channels}, options, true); });
  };
  EXPECT_TRUE(contains(refused({.ops = -1}), "-1 ops"));
  EXPECT_TRUE(contains(refused({.ops = 2, .magnitude = 11}), "11"));
  EXPECT_TRUE(contains(refused({.ops = 2, .spread = -0.5}), "-0.5"));
  EXPECT_TRUE(contains(refused({.ops = 2, .probability = 1.5}), "probability 1.5"));
  EXPECT_TRUE(contains(refused({.ops = 2}, 4), "not 4"));
}

}  // namespace
}  // namespace hearth::data::rand_augment_test
