// SPDX-License-Identifier: Apache-2.0
// Crafted images, each with its outcome: the size it decodes to, or a part of the message by which it is refused. What
// refusing costs is bounded by what is checked before pixels are allocated (docs/images.md).
#include <gtest/gtest.h>

#include <algorithm>

#include "core/build.h"
#include "core/error.h"
#include "data/libraries.h"
#include "tests/support/error_message.h"

#if HEARTH_HAS_ZLIB
#include "data/images/codecs/decode.h"
#include "tests/support/crafted_images.h"

namespace hearth::data::crafted_image_test {
namespace {

using namespace test::crafted;
using test::contains;

struct Crafted {
  std::string name;
  Bytes bytes;
  std::string outcome;  ///< "23 x 37", or a part of the message
};

Bytes part(const Bytes& bytes, double fraction) {
  return {bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(fraction * static_cast<double>(bytes.size()))};
}
/// With `other` at `offset` from the first place where `mark` is.
Bytes patched(Bytes bytes, const Bytes& mark, std::ptrdiff_t offset, const Bytes& other) {
  const auto at = std::search(bytes.begin(), bytes.end(), mark.begin(), mark.end());
  EXPECT_LT(at, bytes.end() - offset);
  std::copy(other.begin(), other.end(), at + offset);
  return bytes;
}

std::vector<Crafted> jpegs() {
  const Bytes rgb = golden("rgb.jpg"), restarts = golden("restarts.jpg"), frame{0xff, 0xc0};
  return {
      {"three components", rgb, "23 x 37"},
      {"half the chroma", golden("subsampled.jpg"), "23 x 37"},
      {"progressive", golden("progressive.jpg"), "23 x 37"},
      {"grey", golden("grey.jpg"), "23 x 37"},
      {"restart markers", restarts, "23 x 37"},
      {"CMYK by Adobe", golden("cmyk.jpg"), "23 x 37"},
      {"arithmetic codes", golden("arithmetic.jpg"), "23 x 37"},
      {"turned", golden("orientation_6.jpg"), "37 x 23"},
      {"an orientation of 9", patched(golden("orientation_6.jpg"), {1, 0x12, 0, 3}, 9, {9}), "23 x 37"},
      {"bytes behind the end", rgb + Bytes(1000, 7), "23 x 37"},
      {"30 scans", jpeg_of_scans(30), "8 x 8"},
      {"883 scans", jpeg_of_scans(883), "more than 100 scans"},
      {"half of it", part(rgb, 0.5), "broken JPEG"},
      {"half of a progressive one", part(golden("progressive.jpg"), 0.5), "broken JPEG"},
      {"the header's half", part(rgb, 0.02), "broken JPEG"},
      {"three bytes", {0xff, 0xd8, 0xff}, "broken JPEG"},
      {"no rows", resized_jpeg("rgb.jpg", 0xc0, 0, 37), "broken JPEG"},
      {"no columns", resized_jpeg("rgb.jpg", 0xc0, 23, 0), "broken JPEG"},
      {"4 gigapixels", resized_jpeg("rgb.jpg", 0xc0, 65'000, 65'000), "at most 100000000"},
      {"100 megapixels", resized_jpeg("rgb.jpg", 0xc0, 10'000, 10'000), "cannot hold"},
      {"100 progressive megapixels", resized_jpeg("progressive.jpg", 0xc2, 10'000, 10'000), "10000 x 10000 pixels"},
      {"90 megapixels of arithmetic codes", resized_jpeg("arithmetic.jpg", 0xc9, 10'000, 9'000), "cannot hold"},
      {"12 bits", patched(rgb, frame, 4, {12}), "broken JPEG"},
      {"lossless", patched(rgb, frame, 1, {0xc3}), "broken JPEG"},
      {"200 components", patched(rgb, frame, 9, {200}), "broken JPEG"},
      {"chroma of 5 by 5", patched(rgb, frame, 11, {0x55}), "broken JPEG"},
      {"more codes than bits", patched(rgb, {0xff, 0xc4}, 5, {255, 255}), "broken JPEG"},
      {"without quantisation", patched(rgb, {0xff, 0xdb}, 1, {0xfe}), "broken JPEG"},
      {"restarts out of order", patched(restarts, {0xff, 0xd1}, 1, {0xd5}), "broken JPEG"},
      {"codes that are none", patched(rgb, {0xff, 0xda}, 40, Bytes(200, 0xfe)), "broken JPEG"},
  };
}

std::vector<Crafted> pngs() {
  const Bytes rgb = golden("rgb.png");
  const Bytes text = letters("k") + Bytes{0, 0};
  return {
      {"RGB", rgb, "23 x 37"},
      {"a palette", golden("palette.png"), "23 x 37"},
      {"16 bits", golden("rgb16.png"), "5 x 7"},
      {"interlaced", golden("interlaced.png"), "2 x 2"},
      {"transparent", golden("alpha.png"), "23 x 37"},
      {"a transparent grey of 4 bits", golden("transparent_grey4.png"), "4 x 6"},
      {"turned", golden("orientation_6.png"), "37 x 23"},
      {"half of it", part(rgb, 0.5), "broken PNG"},
      {"the header's half", part(rgb, 0.01), "broken PNG"},
      {"a header with another checksum", patched(rgb, letters("IHDR"), 7, {36}), "broken PNG"},
      {"no columns", png({.width = 0}, 1), "broken PNG"},
      {"colours of kind 5", png({.color = 5}, 1), "broken PNG"},
      {"3 bits", png({.bits = 3}, 1), "broken PNG"},
      {"a palette that is not there", png({.color = 3}, 1), "broken PNG"},
      {"no pixels", patched(png({}, 1), letters("IDAT"), 0, letters("abCd")), "broken PNG"},
      {"a row too few", png({.width = 200, .height = 200}, 199), "broken PNG"},
      {"a million rows too many", png({.width = 7, .height = 2}, 1'000'000), "more pixels than its header says"},
      {"a row too many", png({.width = 7, .height = 2}, 3), "2 x 7"},
      {"100 megapixels", png({.width = 10'000, .height = 10'000}, 1), "cannot hold"},
      {"100 interlaced megapixels", png({.width = 10'000, .height = 10'000, .interlace = 1}, 1), "cannot hold"},
      {"4 gigapixels", png({.width = 65'000, .height = 65'000}, 1), "at most 100000000"},
      {"texts that inflate to 50 MB", png({}, 1, repeated(text_bomb("zTXt", text, 5'000'000), 10)), "1 x 1"},
  };
}

std::vector<Crafted> bmps_and_others() {
  const Bytes pixels(16);
  return {
      {"RGB", golden("rgb.bmp"), "23 x 37"},
      {"a palette", golden("palette.bmp"), "23 x 37"},
      {"from the top, with alpha", golden("alpha32.bmp"), "23 x 37"},
      {"fields of 16 bits", golden("fields16.bmp"), "5 x 7"},
      {"100 megapixels", bmp({.width = 10'000, .height = 10'000}, pixels), "cannot hold"},
      {"a negative width", bmp({.width = -2}, pixels), "pixels"},
      {"no rows", bmp({.height = 0}, pixels), "pixels"},
      {"4 billion colours", bmp({.bits = 8, .colors = 0xffffffff}, pixels), "colours"},
      {"runs", bmp({.bits = 8, .compression = 1}, pixels), "compression 1"},
      {"pixels behind the end", bmp({.pixels_at = 0xffffffff}, pixels), "cannot hold"},
      {"nothing", {}, "the file is empty"},
      {"a GIF", letters("GIF89a") + Bytes(100), "it is a GIF"},
      {"a TIFF", Bytes{'I', 'I', '*', 0} + Bytes(100), "it is a TIFF"},
      {"a text", letters("neither of these"), "neither JPEG, PNG, WebP nor BMP"},
  };
}

std::vector<Crafted> webps() {
  const Bytes lossy = golden("lossy.webp"), lossless = golden("lossless.webp");
  const auto with = [](Bytes bytes, std::ptrdiff_t at, const Bytes& other) {
    std::copy(other.begin(), other.end(), bytes.begin() + at);
    return bytes;
  };
  return {
      {"lossy", lossy, "23 x 37"},
      {"lossless", lossless, "23 x 37"},
      {"lossless with alpha", golden("lossless_alpha.webp"), "23 x 37"},
      {"turned", golden("orientation_6.webp"), "37 x 23"},
      {"half of a lossy one", part(lossy, 0.5), "broken WebP"},
      {"half of a lossless one", part(lossless, 0.5), "broken WebP"},
      {"268 megapixels", with(lossy, 26, {0xff, 0x3f, 0xff, 0x3f}), "16383 x 16383"},
      {"66 lossy megapixels", with(lossy, 26, {0xff, 0x3f, 0xa0, 0x0f}), "cannot hold"},
      {"50 lossless megapixels", with(lossless, 21, {0xff, 0xff, 0xff, 0x02}), "cannot hold"},
      {"no chunk", letters("RIFF") + Bytes{4, 0, 0, 0} + letters("WEBP"), "broken WebP"},
  };
}

bool reads_webp() {
  for (const FileLibrary& library : file_libraries())
    if (library.name == "WebP") return !library.version.empty();
  return false;
}

TEST(CraftedImageTest, EachHasItsOutcome) {
  if (!HEARTH_HAS_JPEG || !HEARTH_HAS_PNG) GTEST_SKIP() << "this build lacks libjpeg-turbo or libpng";
  std::size_t seen = 0;
  for (const std::vector<Crafted>& kind :
       {jpegs(), pngs(), bmps_and_others(), reads_webp() ? webps() : std::vector<Crafted>()}) {
    for (const Crafted& crafted : kind) {
      ++seen;
      Image image, region;
      std::string outcome, of_region;
      try {
        decode_image(crafted.bytes, "crafted", image);
        outcome = join_text(image.height, " x ", image.width);
      } catch (const DataError& error) {
        outcome = error.what();
        // Nothing was allocated for what cannot be.
        const bool is_claim = contains(outcome, "cannot hold") || contains(outcome, "at most");
        EXPECT_TRUE(!is_claim || image.pixels.capacity() == 0) << crafted.name;
      }
      EXPECT_PRED2(contains, outcome, crafted.outcome) << crafted.name;
      // The same of a region that is all of the image.
      try {
        const Region decoded = decode_region(crafted.bytes, "crafted", unchanged, region);
        of_region = join_text(decoded.height, " x ", decoded.width);
        EXPECT_EQ(region, image) << crafted.name;
      } catch (const DataError& error) {
        of_region = error.what();
      }
      EXPECT_EQ(of_region, outcome) << crafted.name;
    }
  }
  EXPECT_GE(seen, reads_webp() ? 76u : 66u);
}

}  // namespace
}  // namespace hearth::data::crafted_image_test
#endif
