// SPDX-License-Identifier: Apache-2.0
// Parts of images, against the same parts of the whole. The files come from tests/golden/make_regions.py (Pillow).
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>

#include "core/build.h"
#include "core/error.h"
#include "core/random.h"
#include "data/images/codecs/decode.h"
#include "data/images/codecs/image.h"
#include "data/images/transforms/resize.h"
#include "data/images/transforms/transforms.h"
#include "data/libraries.h"
#include "data/source/source_bytes.h"
#include "tests/support/error_message.h"
#include "tests/support/places.h"

namespace hearth::data::region_test {
namespace {

using test::contains;
using test::error_message;
using Bytes = std::vector<std::uint8_t>;

Bytes golden(const std::string& name) {
  Bytes bytes;
  read_bytes(test::source_dir() + "/tests/golden/regions/" + name, bytes, small_file);
  return bytes;
}

bool reads_webp() {
  for (const FileLibrary& library : file_libraries())
    if (library.name == "WebP") return !library.version.empty();
  return false;
}

const char* const jpegs[] = {"444.jpg",           "422.jpg",           "420.jpg",           "440.jpg",
                             "progressive.jpg",   "restarts.jpg",      "grey.jpg",          "cmyk.jpg",
                             "arithmetic.jpg",    "orientation_2.jpg", "orientation_3.jpg", "orientation_4.jpg",
                             "orientation_5.jpg", "orientation_6.jpg", "orientation_7.jpg", "orientation_8.jpg"};
const char* const others[] = {"rgb.png",    "alpha.png",        "rgb.bmp",      "palette.bmp",
                              "lossy.webp", "lossy_alpha.webp", "lossless.webp"};

struct RegionTest : testing::Test {
  void SetUp() override {
    if (!HEARTH_HAS_JPEG || !HEARTH_HAS_PNG) GTEST_SKIP() << "this build lacks libjpeg-turbo or libpng";
  }
};

/// A box with sides between 1 and those of the image.
Box random_box(int height, int width, Random& random) {
  const auto below = [&](int count) { return static_cast<int>(random.below(static_cast<std::uint64_t>(count))); };
  Box box;
  box.height = 1 + below(height);
  box.width = 1 + below(width);
  box.top = below(height - box.height + 1);
  box.left = below(width - box.width + 1);
  return box;
}

/// That a decoded region, resized, has the bytes of the whole image resized in the same way.
void expect_part_of_whole(const std::string& name) {
  const Bytes file = golden(name);
  Image whole, part, expected, result;
  const int orientation = decode_image(file, name, whole);
  Random random(3, 0);
  for (int i = 0; i < 60; ++i) {
    Sizing sizing;
    sizing.box = random_box(whole.height, whole.width, random);
    sizing.height = 1 + static_cast<int>(random.below(40));
    sizing.width = 1 + static_cast<int>(random.below(40));
    sizing.window = random_box(sizing.height, sizing.width, random);
    sizing.filter = static_cast<ResizeFilter>(random.below(3));
    sizing.mirrored = random.below(2) == 1;
    const auto choose = [&](int height, int width) {
      EXPECT_EQ(height, whole.height) << name;
      EXPECT_EQ(width, whole.width) << name;
      return sizing;
    };
    const Region region = decode_region(file, name, choose, part);
    EXPECT_EQ(region.orientation, orientation);
    resize(part, region, result);
    resize(whole, region_of_whole(whole, choose), expected);
    ASSERT_EQ(result, expected) << name << ", box " << i;
  }
}

TEST_F(RegionTest, PartsHaveThePixelsOfTheWhole) {
  for (const std::string name : jpegs) expect_part_of_whole(name);
  for (const std::string name : others)
    if (!name.ends_with(".webp") || reads_webp()) expect_part_of_whole(name);
}

TEST_F(RegionTest, NoMoreIsDecodedThanTheResizeNeeds) {
  const auto choose = [](int, int) { return Sizing{{50, 60, 20, 30}, 20, 30, {0, 0, 20, 30}}; };
  for (const std::string name : {"420.jpg", "orientation_2.jpg", "lossy.webp"}) {
    if (name.ends_with(".webp") && !reads_webp()) continue;
    Image part;
    const Region region = decode_region(golden(name), name, choose, part);
    EXPECT_LE(part.height, 24) << name;
    EXPECT_LE(part.width, 52) << name;  // from the beginning of a block
    EXPECT_EQ(region.height, 117);
    EXPECT_EQ(region.width, 149);
  }
  // Of a file that is cut off behind the part there is no complaint.
  Bytes cut = golden("420.jpg");
  cut.resize(cut.size() * 3 / 4);
  Image part, whole;
  decode_region(cut, "cut.jpg", choose, part);
  EXPECT_THROW(decode_image(cut, "cut.jpg", whole), DataError);
  const auto bottom = [](int, int) { return Sizing{{100, 0, 17, 30}, 17, 30, {0, 0, 17, 30}}; };
  EXPECT_PRED2(contains, error_message<DataError>([&] { decode_region(cut, "cut.jpg", bottom, part); }), "cut.jpg");
  const auto outside = [](int, int) { return Sizing{{100, 0, 18, 30}, 17, 30, {0, 0, 17, 30}}; };
  EXPECT_PRED2(contains, error_message<ShapeError>([&] { decode_region(cut, "cut.jpg", outside, part); }),
               "18 x 30 at (100, 0)");
}

Sizing reduced(int height, int width, int times) {
  Sizing sizing{{0, 0, height, width}, height / times, width / times, {0, 0, height / times, width / times}};
  sizing.scaled_decoding = true;
  return sizing;
}

TEST_F(RegionTest, ScaledDecodingIsPillowsDraft) {
  for (const std::string name : {"444.jpg", "422.jpg", "420.jpg", "progressive.jpg"}) {
    for (const int times : {2, 4, 8}) {
      Image part;
      decode_region(
          golden(name), name, [&](int h, int w) { return reduced(h, w, times); }, part);
      const Bytes expected = golden(name + "." + std::to_string(times) + ".rgb");
      EXPECT_EQ(part.height, (117 + times - 1) / times);
      EXPECT_EQ(part.width, (149 + times - 1) / times);
      ASSERT_EQ(part.pixels.size(), expected.size()) << name << " / " << times;
      int most = 0;
      for (std::size_t i = 0; i < expected.size(); ++i)
        most = std::max(most, std::abs(int{expected[i]} - int{part.pixels[i]}));
      EXPECT_LE(most, 2) << name << " / " << times;
    }
  }
}

TEST_F(RegionTest, ScaledPartsAreThoseOfTheScaledWhole) {
  for (const std::string name : jpegs) {
    const Bytes file = golden(name);
    Random random(4, 0);
    for (int i = 0; i < 60; ++i) {
      Image part, whole, result, expected;
      Sizing sizing;
      const int times = 1 << (1 + random.below(3));
      const auto choose = [&](int height, int width) {
        do sizing.box = random_box(height, width, random);
        while (sizing.box.height < times || sizing.box.width < times);
        sizing.height = sizing.box.height / times;
        sizing.width = sizing.box.width / times;
        sizing.window = random_box(sizing.height, sizing.width, random);
        sizing.scaled_decoding = true;
        return sizing;
      };
      const Region region = decode_region(file, name, choose, part);
      EXPECT_EQ(reduction_of(sizing), times);
      EXPECT_EQ(region.area.height * times, sizing.box.height);
      resize(part, region, result);
      // The same box, of the scaled image: decoded whole because a filter could need all of it.
      Region of_all = decode_region(
          file, name, [&](int h, int w) { return reduced(h, w, times); }, whole);
      EXPECT_EQ(whole.height, (of_all.height + times - 1) / times);
      EXPECT_EQ(whole.width, (of_all.width + times - 1) / times);
      of_all.area.top += static_cast<double>(sizing.box.top) / times;
      of_all.area.left += static_cast<double>(sizing.box.left) / times;
      of_all.area.height = region.area.height;
      of_all.area.width = region.area.width;
      of_all.sizing = sizing;
      resize(whole, of_all, expected);
      ASSERT_EQ(result, expected) << name << " / " << times << ", box " << i;
    }
  }
}

TEST_F(RegionTest, ScaledDecodingShowsTheSamePicture) {
  // Mirrored images too: where the last pixel of the scaled image reaches over the edge, it comes first in them.
  for (const std::string name : jpegs) {
    const Bytes file = golden(name);
    for (const bool scaled : {false, true}) {
      static Image expected;
      Image part, result;
      const auto choose = [&](int height, int width) {
        Sizing sizing{{1, 3, height - 2, width - 8}, 54, 54, {0, 0, 54, 54}};
        sizing.scaled_decoding = scaled;
        return sizing;
      };
      const Region region = decode_region(file, name, choose, part);
      resize(part, region, result);
      if (!scaled) {
        expected = result;
        continue;
      }
      double total = 0;
      for (std::size_t i = 0; i < result.pixels.size(); ++i)
        total += std::abs(int{expected.pixels[i]} - int{result.pixels[i]});
      EXPECT_LT(total / static_cast<double>(result.pixels.size()), 3.0) << name;
      EXPECT_GT(total, 0) << name;
    }
  }
}

TEST_F(RegionTest, ReductionsKeepTheResultsSize) {
  Sizing sizing{{0, 0, 448, 448}, 224, 224, {0, 0, 224, 224}};
  EXPECT_EQ(reduction_of(sizing), 1);
  sizing.scaled_decoding = true;
  EXPECT_EQ(reduction_of(sizing), 2);
  sizing.box.width = 447;
  EXPECT_EQ(reduction_of(sizing), 1);
  sizing.box = {0, 0, 900, 896};
  EXPECT_EQ(reduction_of(sizing), 4);
  sizing.box = {0, 0, 100'000, 100'000};
  EXPECT_EQ(reduction_of(sizing), 8);
}

}  // namespace
}  // namespace hearth::data::region_test
