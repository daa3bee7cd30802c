// SPDX-License-Identifier: Apache-2.0
#include "data/transforms/resize.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "core/build.h"
#include "core/error.h"
#include "data/source_bytes.h"
#include "data/transforms/resize_kernels.h"
#include "tests/data/plain_images.h"
#include "tests/support/error_message.h"
#include "tests/support/places.h"

namespace hearth::data {
namespace {

using test::contains;
using test::error_message;

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

}  // namespace
}  // namespace hearth::data
