// SPDX-License-Identifier: Apache-2.0
// Mixup and CutMix of batches.
#include <gtest/gtest.h>

#include <cmath>
#include <numeric>
#include <vector>

#include "core/error.h"
#include "data/images/transforms/transforms.h"
#include "tests/support/error_message.h"

namespace hearth::data::mixup_test {
namespace {

using test::contains;
using test::error_message;

std::byte* bytes(std::vector<float>& values) { return reinterpret_cast<std::byte*>(values.data()); }

TEST(MixupTest, MixesPairsAndLabels) {
  std::vector<float> images{1, 2, 3, 4, 5, 6};
  mix_images(DType::f32, bytes(images), 3, {1, 2, 1}, {0.75, {0, 0, 1, 2}, 0.75});
  EXPECT_EQ(images, (std::vector<float>{2, 3, 3, 4, 4, 5}));
  const std::vector<std::int64_t> labels{0, 1, 2}, wrong{0, 3, 0};
  std::vector<float> soft(9, -1);
  mix_labels(labels.data(), 3, 3, 0.75, soft.data());
  EXPECT_EQ(soft, (std::vector<float>{0.75f, 0, 0.25f, 0, 1, 0, 0.25f, 0, 0.75f}));
  EXPECT_TRUE(
      contains(error_message<IndexError>([&] { mix_labels(wrong.data(), 3, 3, 0.5, soft.data()); }), "sample 1 is 3"));
}

TEST(MixupTest, SharesFollowTheBetaDistribution) {
  for (const double alpha : {0.1, 0.2, 1.0, 4.0}) {
    double mean = 0, square = 0;
    constexpr int draws = 20000;
    for (std::uint32_t i = 0; i < draws; ++i) {
      Random random(6, 0, i);
      const double lambda = draw_symmetric_beta(alpha, random);
      ASSERT_TRUE(lambda >= 0 && lambda <= 1);
      mean += lambda / draws;
      square += lambda * lambda / draws;
    }
    EXPECT_NEAR(mean, 0.5, 0.015) << alpha;
    EXPECT_NEAR(square - mean * mean, 1 / (4 * (2 * alpha + 1)), 0.01) << alpha;
  }
}

TEST(CutMixTest, ABoxChangesPlacesBetweenTheSamplesOfAPair) {
  constexpr int height = 4, width = 5, channels = 2, elements = height * width * channels;
  std::vector<float> images(3 * elements);
  std::iota(images.begin(), images.end(), 0.5f);
  const std::vector<float> before = images;
  const Box box{1, 2, 2, 3};
  mix_images(DType::f32, bytes(images), 3, {height, width, channels}, {0.0, box, 0.7});
  for (int i = 0; i < 3 * elements; ++i) {
    const int sample = i / elements, row = i % elements / (width * channels), column = i / channels % width;
    const bool cut = row >= 1 && row < 3 && column >= 2;
    const int from = cut ? (2 - sample) * elements + i % elements : i;
    ASSERT_EQ(images[static_cast<std::size_t>(i)], before[static_cast<std::size_t>(from)]) << i;
  }
  for (const Box& outside : {Box{-1, 0, 2, 2}, Box{0, 3, 2, 3}, Box{3, 0, 2, 2}, Box{0, 0, 2, -1}})
    EXPECT_THROW(mix_images(DType::f32, bytes(images), 3, {height, width, channels}, {0.0, outside, 0.5}), ShapeError);
}

TEST(CutMixTest, LabelsAreWeighedByTheAreaThatIsLeft) {
  double mean = 0;
  int at_an_edge = 0, empty = 0;
  constexpr int draws = 4000, height = 24, width = 17;
  for (std::uint32_t i = 0; i < draws; ++i) {
    Random random(6, 0, i);
    const PairMix mix = draw_pair_mix(0, 1.0, height, width, random);
    ASSERT_EQ(mix.lambda, 0);
    const Box& box = mix.box;
    ASSERT_TRUE(box.top >= 0 && box.left >= 0 && box.top + box.height <= height && box.left + box.width <= width);
    ASSERT_DOUBLE_EQ(mix.weight, 1.0 - box.height * box.width / (1.0 * height * width));
    mean += mix.weight / draws;
    at_an_edge += box.top == 0 || box.left == 0 ? 1 : 0;
    empty += box.height * box.width == 0 ? 1 : 0;
  }
  // Uniform areas lose what the edges cut: between the half that remains on average and all.
  EXPECT_TRUE(mean > 0.55 && mean < 0.85) << mean;
  EXPECT_GT(at_an_edge, draws / 4);
  EXPECT_LT(empty, draws / 20);
}

TEST(CutMixTest, OfBothEachIsTakenHalfOfTheTime) {
  constexpr int draws = 2000;
  int cuts = 0;
  for (std::uint32_t i = 0; i < draws; ++i) {
    Random random(8, 0, i), same(8, 0, i);
    const PairMix mix = draw_pair_mix(0.8, 1.0, 8, 8, random), again = draw_pair_mix(0.8, 1.0, 8, 8, same);
    ASSERT_TRUE(mix.box == again.box && mix.weight == again.weight && mix.lambda == again.lambda);
    cuts += mix.lambda == 0 ? 1 : 0;
    EXPECT_TRUE(mix.lambda == 0 || ((mix.box == Box{0, 0, 8, 8}) && mix.weight == mix.lambda));
  }
  EXPECT_NEAR(cuts, draws / 2, 5 * std::sqrt(draws / 4.0));
  // Mixup alone draws as ever.
  Random random(8, 0, 1), plain(8, 0, 1);
  EXPECT_EQ(draw_pair_mix(0.8, 0, 8, 8, random).lambda, draw_symmetric_beta(0.8, plain));
}

TEST(CutMixTest, OfNeitherNothingIsMixed) {
  Random random(8, 0, 1);
  const PairMix none = draw_pair_mix(0, 0, 8, 6, random);
  EXPECT_TRUE(none.lambda == 1 && none.weight == 1 && (none.box == Box{0, 0, 8, 6}));
  EXPECT_THROW((void)draw_pair_mix(-1, 0, 8, 8, random), ConfigError);
  EXPECT_THROW((void)draw_pair_mix(0, -1, 8, 8, random), ConfigError);
  EXPECT_THROW((void)draw_pair_mix(0, 1, 0, 8, random), ConfigError);
}

}  // namespace
}  // namespace hearth::data::mixup_test
