// SPDX-License-Identifier: Apache-2.0
// The golden files come from tests/golden/make_images.py (Pillow).
#include "data/images/codecs/image.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>

#include "core/build.h"
#include "core/error.h"
#include "data/images/codecs/decode.h"
#include "data/images/codecs/exif.h"
#include "data/libraries.h"
#include "data/source/source_bytes.h"
#include "tests/support/error_message.h"
#include "tests/support/places.h"
#include "tests/support/temp_dir.h"

namespace hearth::data::image_test {
namespace {

using test::contains;
using test::error_message;

using Bytes = std::vector<std::uint8_t>;

std::string golden(const std::string& name) { return test::source_dir() + "/tests/golden/images/" + name; }

Bytes bytes_of(const std::string& path) {
  Bytes bytes;
  read_bytes(path, bytes, small_file);
  return bytes;
}

int largest_difference(const Bytes& a, const Bytes& b) {
  int most = 0;
  for (std::size_t i = 0; i < a.size(); ++i) most = std::max(most, std::abs(int{a[i]} - int{b[i]}));
  return most;
}

bool reads_webp() {
  for (const FileLibrary& library : file_libraries())
    if (library.name == "WebP") return !library.version.empty();
  return false;
}

struct ImageTest : testing::Test {
  void SetUp() override {
    if (!HEARTH_HAS_JPEG || !HEARTH_HAS_PNG) GTEST_SKIP() << "this build lacks libjpeg-turbo or libpng";
  }
};

TEST_F(ImageTest, EveryKindDecodesAsInPillow) {
  std::ifstream list(golden("sizes.txt"));
  std::string name;
  int height = 0, width = 0, seen = 0;
  while (list >> name >> height >> width) {
    ++seen;
    if (name.ends_with(".webp") && !reads_webp()) continue;
    const Image image = decode_image(golden(name));
    const Bytes expected = bytes_of(golden(name + ".rgb"));
    EXPECT_EQ(image.height, height) << name;
    EXPECT_EQ(image.width, width) << name;
    EXPECT_EQ(image.channels, 3) << name;
    ASSERT_EQ(image.pixels.size(), expected.size()) << name;
    // Inverse transforms of different libjpegs may differ by one level; two conversions of CMYK by one more.
    EXPECT_LE(largest_difference(image.pixels, expected), name.ends_with(".jpg") ? 2 : 0) << name;
  }
  EXPECT_EQ(seen, 38);
}

TEST_F(ImageTest, TruncationIsAnErrorNamingTheFile) {
  for (const std::string name : {"rgb.jpg", "progressive.jpg", "cmyk.jpg", "rgb.png", "alpha.png", "lossy.webp",
                                 "lossless.webp", "lossy_alpha.webp", "rgb.bmp", "palette.bmp", "alpha32.bmp"}) {
    if (name.ends_with(".webp") && !reads_webp()) continue;
    const Bytes whole = bytes_of(golden(name));
    Image image;
    // The very last bytes are an end marker, without which all pixels are there.
    for (std::size_t size = 0; size + 20 < whole.size(); size += 7) {
      const std::string message =
          error_message<DataError>([&] { decode_image(std::span(whole).first(size), "cut.img", image); });
      ASSERT_TRUE(contains(message, "cut.img: ")) << name << " at " << size << ": " << message;
    }
  }
}

TEST_F(ImageTest, FlippedBytesNeverCrash) {
  for (const std::string name : {"rgb.jpg", "progressive.jpg", "restarts.jpg", "palette.png", "interlaced.png",
                                 "lossless.webp", "lossy_alpha.webp", "fields16.bmp", "four_bits.bmp", "os2.bmp"}) {
    if (name.ends_with(".webp") && !reads_webp()) continue;
    const Bytes whole = bytes_of(golden(name));
    int refused = 0;
    for (std::size_t i = 0; i < whole.size(); ++i) {
      Bytes damaged = whole;
      damaged[i] ^= 0x55;
      Image image;
      try {
        decode_image(damaged, "damaged", image);
      } catch (const DataError&) {
        ++refused;
      }
    }
    EXPECT_GT(refused, 4) << name;
  }
}

TEST_F(ImageTest, ScansThatDoNotFollowEachOtherAreAnError) {
  Bytes jpeg = bytes_of(golden("progressive.jpg"));
  // The scan that refines bit 1 of the luminance says that it refines bit 2, which leaves bit 1 as it was.
  const Bytes scan{0xff, 0xda, 0x00, 0x08, 0x01, 0x01, 0x00, 0x01, 0x3f, 0x21};
  const auto at = std::search(jpeg.begin(), jpeg.end(), scan.begin(), scan.end());
  ASSERT_NE(at, jpeg.end());
  at[9] = 0x32;
  Image image;
  EXPECT_TRUE(contains(error_message<DataError>([&] { decode_image(jpeg, "scans.jpg", image); }),
                       "scans.jpg: broken JPEG: Inconsistent progression"));
}

TEST_F(ImageTest, DamagedArithmeticCodesAreAnError) {
  const Bytes whole = bytes_of(golden("arithmetic.jpg"));
  int named = 0;
  for (std::size_t i = 0; i < 4 * whole.size(); ++i) {
    Bytes damaged = whole;
    damaged[i / 4] ^= static_cast<std::uint8_t>(0x15 << i % 4);
    Image image;
    try {
      decode_image(damaged, "damaged", image);
    } catch (const DataError& error) {
      named += contains(error.what(), "bad arithmetic code") ? 1 : 0;
    }
  }
  EXPECT_GT(named, 4);
}

TEST_F(ImageTest, OtherContentIsRefusedWhateverItsName) {
  test::TempDir folder;
  EXPECT_TRUE(contains(error_message<DataError>([&] {
                         decode_image(folder.write("a.png", {'G', 'I', 'F', '8'}));
                       }),
                       "a.png: neither JPEG, PNG, WebP nor BMP (it is a GIF)"));
  EXPECT_TRUE(contains(error_message<DataError>([&] { decode_image(folder.write("b.jpg", {})); }), "empty"));
  EXPECT_TRUE(contains(error_message<FileError>([&] { decode_image(folder / "c.jpg"); }), "No such file"));
  // The content decides: a PNG called JPEG is read.
  EXPECT_EQ(decode_image(folder.write("d.JPEG", bytes_of(golden("rgb.png")))), decode_image(golden("rgb.png")));
}

TEST_F(ImageTest, AbsurdSizesAreRefusedBeforeMemoryIsTaken) {
  Bytes jpeg = bytes_of(golden("rgb.jpg"));
  const Bytes frame{0xff, 0xc0};
  const auto at = std::search(jpeg.begin(), jpeg.end(), frame.begin(), frame.end());
  ASSERT_NE(at, jpeg.end());
  std::fill_n(at + 5, 4, std::uint8_t{0xff});
  Image image;
  const std::string message = error_message<DataError>([&] { decode_image(jpeg, "huge", image); });
  EXPECT_TRUE(contains(message, "65535") || contains(message, "65500")) << message;
  EXPECT_LT(image.pixels.capacity(), 1u << 20);
  EXPECT_THROW(image.reshape(20000, 20000, 3), ShapeError);
}

TEST_F(ImageTest, TheOrientationIsToldAndApplied) {
  Image stored, upright;
  decode_image(bytes_of(golden("orientation_1.jpg")), "1", stored);
  for (int orientation = 1; orientation <= 8; ++orientation) {
    const std::string name = golden(join_text("orientation_", orientation, ".jpg"));
    EXPECT_EQ(decode_image(bytes_of(name), name, upright), orientation);
    Image turned = stored;
    make_upright(turned, orientation);
    EXPECT_EQ(turned, upright) << orientation;
  }
  EXPECT_EQ(exif_orientation(bytes_of(golden("orientation_6.png"))), 6);
  EXPECT_EQ(exif_orientation(bytes_of(golden("orientation_6.webp"))), 6);
  EXPECT_EQ(exif_orientation(bytes_of(golden("rgb.bmp"))), 1);
  EXPECT_THROW(make_upright(stored, 0), UsageError);
  EXPECT_THROW(make_upright(stored, 9), UsageError);
}

TEST_F(ImageTest, BrokenExifIsNone) {
  const Bytes whole = bytes_of(golden("orientation_8.jpg"));
  const Bytes tag{0x01, 0x12, 0x00, 0x03};
  const auto at = std::search(whole.begin(), whole.end(), tag.begin(), tag.end()) - whole.begin();
  ASSERT_LT(at, 100);
  int upright = 0;
  for (std::size_t i = 2; i < static_cast<std::size_t>(at) + 12; ++i)
    for (const int value : {0x00, 0x7f, 0x80, 0xff}) {
      Bytes damaged = whole;
      damaged[i] = static_cast<std::uint8_t>(value);
      const int orientation = exif_orientation(damaged);
      EXPECT_TRUE(orientation >= 1 && orientation <= 8) << i;
      upright += orientation == 1 ? 1 : 0;
    }
  EXPECT_GT(upright, 40);
  for (const std::string name : {"orientation_8.jpg", "orientation_6.png", "orientation_6.webp"}) {
    const Bytes file = bytes_of(golden(name));
    for (std::size_t size = 0; size < file.size(); ++size) {
      const Bytes cut(file.begin(), file.begin() + static_cast<std::ptrdiff_t>(size));
      EXPECT_LE(exif_orientation(cut), 8) << name;
    }
  }
}

TEST_F(ImageTest, PngRoundTrip) {
  test::TempDir folder;
  const Image image = decode_image(golden("rgb.png"));
  write_png(folder / "out.png", image);
  EXPECT_EQ(decode_image(folder / "out.png"), image);
  EXPECT_TRUE(contains(error_message<FileError>([&] { write_png(folder / "no/out.png", image); }), "no/out.png"));
  Image two;
  two.reshape(2, 2, 2);
  EXPECT_TRUE(contains(error_message<ShapeError>([&] { write_png(folder / "x.png", two); }), "2 channels"));
}

}  // namespace
}  // namespace hearth::data::image_test
