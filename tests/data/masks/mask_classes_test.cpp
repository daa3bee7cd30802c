// SPDX-License-Identifier: Apache-2.0
#include "data/masks/mask_classes.h"

#include <gtest/gtest.h>

#include "core/error.h"
#include "core/random.h"
#include "data/images/codecs/decode.h"
#include "tests/support/crafted_images.h"
#include "tests/support/error_message.h"

namespace hearth::data::mask_classes_test {
namespace {

using namespace test::crafted;
using test::contains;
using test::error_message;

/// A PNG of such rows of bytes, each packed as its form has it. `colour_type` 0 grey, 2 RGB, 3 palette, 4 grey and
/// alpha, 6 RGBA.
Bytes png_of(int width, int bits, int colour_type, const std::vector<Bytes>& rows, const Bytes& ancillary = {}) {
  Bytes plain;
  for (const Bytes& row : rows) plain = std::move(plain) + Bytes{0} + row;
  return Bytes{0x89, 'P', 'N', 'G', 13, 10, 26, 10} +
         chunk("IHDR", big_endian(width, 4) + big_endian(rows.size(), 4) +
                           Bytes{static_cast<std::uint8_t>(bits), static_cast<std::uint8_t>(colour_type), 0, 0, 0}) +
         ancillary + chunk("IDAT", deflated(plain)) + chunk("IEND", {});
}

const Bytes palette = chunk("PLTE", {0, 0, 0, 128, 64, 128, 70, 70, 70});

Bytes decoded(const MaskCode& code, const Bytes& file) {
  return MaskClasses(code).decode(file, "m.png", default_decode_bytes).pixels;
}
const MaskCode three{.classes = {"a", "b", "c"}};
const MaskCode coloured{
    .classes = {"a", "b", "c"}, .colors = {"#000000", "#804080", "#464646"}, .ignored_colors = {"#FFFFFF"}};

struct MaskClassesTest : ::testing::Test {
  void SetUp() override {
    if (encode_png(Image{1, 1, 1, {0}}).empty()) GTEST_SKIP() << "no libpng";
  }
};

TEST_F(MaskClassesTest, ReadIdsOfGreyAndPalettes) {
  EXPECT_EQ(decoded(three, png_of(3, 8, 0, {{0, 2, 1}, {255, 1, 0}})), (Bytes{0, 2, 1, 255, 1, 0}));
  EXPECT_EQ(decoded(three, png_of(3, 8, 3, {{0, 2, 1}}, palette)), (Bytes{0, 2, 1}));
  // Two bits a pixel: 0, 1, 2, 2, 1.
  EXPECT_EQ(decoded(three, png_of(5, 2, 3, {{0x1A, 0x40}}, palette)), (Bytes{0, 1, 2, 2, 1}));
  // One bit a pixel.
  EXPECT_EQ(decoded(three, png_of(3, 1, 3, {{0xA0}}, palette)), (Bytes{1, 0, 1}));
}

TEST_F(MaskClassesTest, ReadOtherIdsAndSeveralIgnoredOnes) {
  const MaskCode code{.classes = {"road", "car"}, .ids = {7, 255}, .ignored = {0, 9}};
  EXPECT_EQ(decoded(code, png_of(4, 8, 0, {{7, 255, 0, 9}})), (Bytes{0, 1, ignored_pixel, ignored_pixel}));
}

TEST_F(MaskClassesTest, ReadColoursOfRgbPalettesAndGrey) {
  EXPECT_EQ(decoded(coloured, png_of(3, 8, 2, {{128, 64, 128, 0, 0, 0, 255, 255, 255}})), (Bytes{1, 0, 255}));
  EXPECT_EQ(decoded(coloured, png_of(3, 8, 3, {{2, 1, 0}}, palette)), (Bytes{2, 1, 0}));
  EXPECT_EQ(decoded(coloured, png_of(2, 8, 0, {{0, 70}})), (Bytes{0, 2}));
}

TEST_F(MaskClassesTest, RefuseWhatIsNoMask) {
  const auto message = [](const MaskCode& code, const Bytes& file) {
    const std::string text = error_message<DataError>([&] { (void)decoded(code, file); });
    EXPECT_TRUE(text.starts_with("m.png: ")) << text;
    return text;
  };
  EXPECT_PRED2(contains, message(three, png_of(3, 8, 0, {{0, 0, 0}, {0, 3, 0}})), "row 1, column 1 has the id 3");
  EXPECT_PRED2(contains, message(three, png_of(3, 8, 0, {{3, 0, 0}})), "add the class to \"classes\"");
  EXPECT_PRED2(contains, message(three, png_of(1, 8, 2, {{1, 1, 1}})), "give \"colors\"");
  EXPECT_PRED2(contains, message(coloured, png_of(2, 8, 2, {{0, 0, 0, 1, 2, 3}})), "column 1 has the colour #010203");
  EXPECT_PRED2(contains, message(coloured, png_of(1, 8, 3, {{3}}, palette)), "");
  EXPECT_PRED2(contains, message(three, png_of(1, 16, 0, {{0, 1}})), "16 bits a sample");
  EXPECT_PRED2(contains, message(three, png_of(1, 16, 2, {{0, 1, 0, 1, 0, 1}})), "16 bits a sample");
  EXPECT_PRED2(contains, message(three, png_of(1, 8, 4, {{0, 255}})), "transparency");
  EXPECT_PRED2(contains, message(three, png_of(1, 8, 6, {{0, 0, 0, 255}})), "transparency");
  EXPECT_PRED2(contains, message(three, png_of(1, 8, 3, {{0}}, palette + chunk("tRNS", {0}))), "transparency");
  EXPECT_PRED2(contains, message(three, png_of(8, 1, 0, {{0xA0}})), "a grey mask of 1 bits");
  EXPECT_PRED2(contains, message(three, golden("rgb.jpg")), "no PNG");
  EXPECT_PRED2(contains, message(three, golden("orientation_6.png")), "EXIF orientation");
  Bytes cut = png_of(3, 8, 0, {{0, 2, 1}, {255, 1, 0}});
  cut.resize(cut.size() - 20);
  EXPECT_PRED2(contains, message(three, cut), "broken PNG");
  EXPECT_PRED2(contains, message(three, {}), "no PNG");
}

TEST_F(MaskClassesTest, KeepToTheLimitOfMemory) {
  const Bytes file = png_of(2000, 8, 0, std::vector<Bytes>(2000, Bytes(2000)));
  EXPECT_THROW((void)MaskClasses(three).decode(file, "m.png", 1 << 20), DataError);
}

TEST_F(MaskClassesTest, BrokenFilesAreErrorsAndNothingElse) {
  const Bytes whole[] = {png_of(5, 2, 3, {{0x1A, 0x40}, {0, 0}}, palette), png_of(3, 8, 0, {{0, 2, 1}, {255, 1, 0}}),
                         png_of(2, 8, 2, {{0, 0, 0, 128, 64, 128}})};
  Random random(3, 0);
  int refused = 0;
  for (int i = 0; i < 3000; ++i) {
    Bytes file = whole[i % 3];
    for (std::uint64_t changes = 1 + random.below(4); changes > 0; --changes)
      file[random.below(file.size())] = static_cast<std::uint8_t>(random.below(256));
    if (random.below(4) == 0) file.resize(random.below(file.size()));
    try {
      (void)decoded(i % 3 == 2 ? coloured : three, file);
    } catch (const DataError&) {
      ++refused;
    }
  }
  EXPECT_GT(refused, 1000);
}

TEST_F(MaskClassesTest, RefuseCodesThatDoNotFit) {
  const auto message = [](const MaskCode& code) {
    return error_message<ConfigError>([&] { MaskClasses classes(code); });
  };
  EXPECT_PRED2(contains, message({.classes = {"a"}}), "2 to 255");
  EXPECT_PRED2(contains, message({.classes = {"a", "a"}}), "there twice");
  EXPECT_PRED2(contains, message({.classes = {"a", "b"}, .ids = {1}}), "1 ids for 2 classes");
  EXPECT_PRED2(contains, message({.classes = {"a", "b"}, .ids = {1, 1}}), "1 stands for the class \"a\"");
  EXPECT_PRED2(contains, message({.classes = {"a", "b"}, .ids = {0, 255}}), "set \"ignored\" to []");
  EXPECT_PRED2(contains, message({.classes = {"a", "b"}, .ids = {0, 256}}), "no pixel value");
  EXPECT_PRED2(contains, message({.classes = {"a", "b"}, .colors = {"#000000"}}), "1 colours for 2 classes");
  EXPECT_PRED2(contains, message({.classes = {"a", "b"}, .colors = {"#000000", "#00000g"}}), "is no colour");
  EXPECT_PRED2(contains, message({.classes = {"a", "b"}, .colors = {"#000000", "black"}}), "is no colour");
  EXPECT_PRED2(contains, message({.classes = {"a", "b"}, .colors = {"#aaaaaa", "#AAAAAA"}}), "there twice");
  EXPECT_PRED2(contains, message({.classes = {"a", "b"}, .ids = {0, 1}, .colors = {"#000000", "#000001"}}), "leave");
  EXPECT_PRED2(contains, message({.classes = {"a", "b"}, .ignored_colors = {"#000000"}}), "needs \"colors\"");
}

}  // namespace
}  // namespace hearth::data::mask_classes_test
