// SPDX-License-Identifier: Apache-2.0
#include "data/images/transforms/resize.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "core/build.h"
#include "core/error.h"
#include "data/images/codecs/decode.h"
#include "data/images/transforms/resize_kernels.h"
#include "data/source/source_bytes.h"
#include "tests/data/images/plain_images.h"
#include "tests/support/error_message.h"
#include "tests/support/places.h"

namespace hearth::data::resize_test {
namespace {

using test::contains;
using test::error_message;

// The definition in double precision, columns before rows, and between them no value beyond those of a byte. Weights of
// an input at a distance from the output's centre, in output pixels or, where these are smaller, input pixels; of
// `area` the part of the input that the output covers.
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
    double of_row = 0, total_of_row = 0;
    for (int j = 0; j < box.width; ++j) {
      const double w = weight(filter, j, (x + 0.5) * scale_x, std::max(scale_x, 1.0));
      of_row += w * image.row(box.top + i)[(box.left + j) * image.channels + c];
      total_of_row += w;
    }
    const double w = weight(filter, i, (y + 0.5) * scale_y, std::max(scale_y, 1.0));
    sum += w * std::clamp(of_row / total_of_row, 0.0, 255.0);
    total += w;
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

TEST(ResizeTest, EveryInstructionSetWeighsColumnsAlike) {
  Random random(5, 0);
  const auto below = [&](int count) { return static_cast<int>(random.below(static_cast<std::uint64_t>(count))); };
  constexpr int columns = 40;
  for (const int channels : {1, 2, 3})
    for (const int width : {1, 3, 4, 7, 16, 33})
      for (int pairs = 1; pairs <= 6; ++pairs) {
        const Image rows = noise(2, columns + 2 * pairs + 4, channels, static_cast<std::uint64_t>(width));
        std::vector<int> first(static_cast<std::size_t>((width + 3) / 4 * 4));
        std::vector<std::int16_t> weights(static_cast<std::size_t>(width * 2 * pairs));
        std::vector<std::int32_t> spread(static_cast<std::size_t>((width + 3) / 4 * pairs * 16));
        for (int x = 0; x < width; ++x) {
          first[static_cast<std::size_t>(x)] = below(columns) * channels;
          for (int k = 0; k < 2 * pairs; ++k) {
            const int weight = below(9000) - 1000;
            weights[static_cast<std::size_t>(x * 2 * pairs + k)] = static_cast<std::int16_t>(weight);
            const std::size_t at = kernels::spread_at(x, k / 2, pairs, channels);
            for (std::size_t copy = 0; copy < (channels == 3 ? 4 : 1); ++copy)
              spread[at + copy] |= k % 2 == 0 ? weight & 0xffff : weight * 65536;
          }
        }
        std::vector<std::int16_t> made[2];
        for (auto& row : made) row.resize(static_cast<std::size_t>(width * channels) + kernels::resize_slack);
        kernels::weigh_columns({{rows.row(0), rows.row(1)}, {made[0].data(), made[1].data()}},
                               {first.data(), weights.data(), 2 * pairs, spread.data(), pairs, width}, 7, channels);
        for (int r = 0; r < 2; ++r)
          for (int i = 0; i < width * channels; ++i) {
            int sum = 0;
            for (int k = 0; k < 2 * pairs; ++k)
              sum += rows.row(r)[first[static_cast<std::size_t>(i / channels)] + k * channels + i % channels] *
                     weights[static_cast<std::size_t>(i / channels * 2 * pairs + k)];
            ASSERT_EQ(made[r][static_cast<std::size_t>(i)], std::clamp(sum >> 7, 0, 255 << kernels::resize_point))
                << channels << ", " << width << ", " << pairs << ", row " << r;
          }
      }
}

TEST(ResizeTest, EveryInstructionSetWeighsRowsAlike) {
  Random random(6, 0);
  const auto below = [&](int count) { return static_cast<int>(random.below(static_cast<std::uint64_t>(count))); };
  for (const int count : {1, 3, 31, 32, 33, 63, 64, 65, 100, 300})
    for (int taps = 1; taps <= 11; ++taps)
      for (const bool above_one : {false, true}) {
        constexpr int bits = 14;
        std::vector<std::vector<std::int16_t>> rows(static_cast<std::size_t>(taps));
        std::vector<const std::int16_t*> at;
        std::vector<std::int16_t> weights;
        for (auto& row : rows) {
          row.resize(static_cast<std::size_t>(count) + kernels::resize_slack);
          for (auto& value : row) value = static_cast<std::int16_t>(below(20'000) - 1000);
          at.push_back(row.data());
          weights.push_back(static_cast<std::int16_t>(below((1 << bits) / taps)));
        }
        if (above_one) weights[0] = (1 << bits) + 1, weights.back() = taps > 1 ? -500 : weights[0];
        std::vector<std::uint8_t> made(static_cast<std::size_t>(count));
        kernels::weigh_rows({at.data(), weights.data(), taps, bits}, made.size(), made.data());
        for (std::size_t i = 0; i < made.size(); ++i) {
          int exact = 1 << (bits + kernels::resize_point - 1), rounded = 1 << (kernels::resize_point - 1);
          for (std::size_t k = 0; k < rows.size(); ++k) {
            exact += rows[k][i] * weights[k];
            rounded += (rows[k][i] * weights[k] * 2 + (1 << 14)) >> 15;
          }
          const bool few = taps <= 8 && !above_one;
          const int sum = few ? rounded >> kernels::resize_point : exact >> (bits + kernels::resize_point);
          ASSERT_EQ(made[i], std::clamp(sum, 0, 255)) << count << ", " << taps << ", " << above_one;
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

TEST(ResizeTest, PutsIntoMemoryWhatItPutsIntoAnImage) {
  const Image image = noise(19, 31, 3);
  Image expected;
  const Region region = region_of(image, {1, 2, 17, 28}, 12, 40, {2, 3, 9, 30}, ResizeFilter::bilinear);
  resize(image, region, expected);
  std::vector<std::uint8_t> made(expected.pixels.size() + 1, 7);
  EXPECT_TRUE(resize_into(image, region, made.data()));
  EXPECT_TRUE(std::equal(expected.pixels.begin(), expected.pixels.end(), made.begin()));
  EXPECT_EQ(made.back(), 7);
  EXPECT_FALSE(resize_into(image, region_of_whole(image, unchanged), made.data()));
}

}  // namespace
}  // namespace hearth::data::resize_test
