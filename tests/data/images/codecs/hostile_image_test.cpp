// SPDX-License-Identifier: Apache-2.0
// Crafted images: what comes of each, and that decoding it takes no more memory than is stated. Each is decoded in a
// child process, which tells by how much its address space grew at most. Compressed bombs are made by zlib.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <limits>

#include "core/build.h"
#include "core/error.h"
#include "data/images/codecs/image.h"
#include "data/source/source_bytes.h"
#include "tests/support/error_message.h"

#if HEARTH_HAS_ZLIB
#include "data/images/codecs/decode.h"
#include "tests/support/crafted_images.h"

namespace hearth::data::hostile_image_test {
namespace {

using test::contains;
using namespace test::crafted;

constexpr std::int64_t mib = std::int64_t{1} << 20;

enum class End : std::uint8_t { decoded, refused, other };

struct Outcome {
  End end = End::other;
  std::int64_t grown = 0;  ///< of the address space, in bytes at most
  std::string message;
};

/// A line of /proc/self/status that is in kB, in bytes.
std::int64_t status_bytes(const std::string& key) {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);)
    if (line.starts_with(key + ":")) return std::stoll(line.substr(key.size() + 1)) * 1024;
  return 0;
}

Outcome decode_aside(const std::function<void()>& decode) {
  std::array<int, 2> ends{};
  if (pipe(ends.data()) != 0) return {};
  const pid_t child = fork();
  if (child == 0) {
    End end = End::decoded;
    std::string message;
    const std::int64_t before = status_bytes("VmSize");
    try {
      decode();
    } catch (const DataError& error) {
      end = End::refused;
      message = error.what();
    } catch (const std::exception& error) {
      end = End::other;
      message = error.what();
    }
    message = std::to_string(status_bytes("VmPeak") - before) + ' ' + message;
    const bool told = write(ends[1], message.data(), message.size()) > 0;
    _exit(static_cast<int>(told ? end : End::other));
  }
  close(ends[1]);
  Outcome outcome;
  std::array<char, 4096> buffer{};
  for (ssize_t got = 0; (got = read(ends[0], buffer.data(), buffer.size())) > 0;)
    outcome.message.append(buffer.data(), static_cast<std::size_t>(got));
  close(ends[0]);
  outcome.grown = std::atoll(outcome.message.c_str());
  int status = 0;
  if (waitpid(child, &status, 0) == child && WIFEXITED(status)) outcome.end = static_cast<End>(WEXITSTATUS(status));
  return outcome;
}

struct Hostile {
  std::string name;
  Bytes bytes;
  End end;
  std::string message;   ///< part of it; empty where the image is decoded
  std::int64_t max_mib;  ///< that decoding may take
};

void expect_outcome(const Hostile& image, const std::function<void()>& decode) {
  const Outcome outcome = decode_aside(decode);
  EXPECT_EQ(outcome.end, image.end) << image.name << ": " << outcome.message;
  EXPECT_PRED2(contains, outcome.message, image.message) << image.name;
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
  EXPECT_LE(outcome.grown, image.max_mib * mib) << image.name;
#endif
}

void expect_outcomes(const std::vector<Hostile>& images) {
  for (const Hostile& image : images)
    expect_outcome(image, [&] {
      Image decoded;
      decode_image(image.bytes, "hostile", decoded);
    });
}

TEST(HostileImageTest, PngChunksBesideThePixelsTakeNothing) {
  if (!HEARTH_HAS_PNG) GTEST_SKIP() << "this build lacks libpng";
  const Bytes name = letters("k") + Bytes{0, 0}, international = letters("k") + Bytes{0, 1, 0, 0, 0};
  expect_outcomes({
      {"200 compressed sequences", png({}, 1, repeated(text_bomb("zTXt", name, 5'000'000), 200)), End::decoded, "", 2},
      {"100 international sequences", png({}, 1, repeated(text_bomb("iTXt", international, 5'000'000), 100)),
       End::decoded, "", 2},
      {"a colour profile", png({}, 1, text_bomb("iCCP", name, 7'000'000)), End::decoded, "", 2},
      {"300 palettes nobody asked for", png({}, 1, repeated(chunk("sPLT", letters("p") + Bytes(60'002)), 300)),
       End::decoded, "", 2},
      {"a text of 9 MB", png({}, 1, chunk("tEXt", letters("k") + Bytes(9'000'000))), End::decoded, "", 2},
      {"5,000 unknown chunks", png({}, 1, repeated(chunk("abCd", Bytes(500)), 5'000)), End::decoded, "", 2},
  });
}

TEST(HostileImageTest, PngHeadersThatTheFileCannotHold) {
  if (!HEARTH_HAS_PNG) GTEST_SKIP() << "this build lacks libpng";
  expect_outcomes({
      {"100 megapixels", png({.width = 10'000, .height = 10'000}, 1), End::refused, "10000 x 10000 pixels", 4},
      {"of 16 bits", png({.width = 10'000, .height = 10'000, .bits = 16, .color = 6}, 1), End::refused, "pixels", 4},
      {"interlaced", png({.width = 10'000, .height = 10'000, .color = 6, .interlace = 1}, 1), End::refused, "pixels",
       4},
      {"a row of 50 megapixels", png({.width = 50'000'000, .height = 2}, 0), End::refused, "broken PNG", 4},
      {"4 gigapixels", png({.width = 65'000, .height = 65'000}, 1), End::refused, "at most 100000000", 4},
      {"no pixels", png({.width = 0, .height = 1}, 1), End::refused, "broken PNG", 4},
      {"a row too few", png({.width = 2'000, .height = 2'000}, 1'999), End::refused, "broken PNG", 20},
  });
}

TEST(HostileImageTest, JpegHeadersThatTheFileCannotHold) {
  if (!HEARTH_HAS_JPEG) GTEST_SKIP() << "this build lacks libjpeg-turbo";
  expect_outcomes({
      {"100 megapixels", resized_jpeg("rgb.jpg", 0xc0, 10'000, 10'000), End::refused, "10000 x 10000 pixels", 4},
      {"progressive", resized_jpeg("progressive.jpg", 0xc2, 10'000, 10'000), End::refused, "pixels", 4},
      {"4 gigapixels", resized_jpeg("rgb.jpg", 0xc0, 65'000, 65'000), End::refused, "at most 100000000", 4},
      {"883 scans", jpeg_of_scans(883), End::refused, "scans", 4},
      {"30 scans", jpeg_of_scans(30), End::decoded, "", 4},
  });
}

TEST(HostileImageTest, BmpHeadersThatTheFileCannotHold) {
  const Bytes pixels(16);
  constexpr std::int32_t least = std::numeric_limits<std::int32_t>::min();
  expect_outcomes({
      {"whole", bmp({}, pixels), End::decoded, "", 1},
      {"from the top", bmp({.height = -2}, pixels), End::decoded, "", 1},
      {"100 megapixels", bmp({.width = 10'000, .height = 10'000}, pixels), End::refused, "cannot hold", 1},
      {"a byte too few", bmp({}, Bytes(15)), End::refused, "cannot hold", 1},
      {"4 gigapixels", bmp({.width = 65'000, .height = 65'000}, pixels), End::refused, "at most 100000000", 1},
      {"no pixels", bmp({.width = 0}, pixels), End::refused, "pixels", 1},
      {"a negative width", bmp({.width = -2}, pixels), End::refused, "pixels", 1},
      {"the least height", bmp({.height = least}, pixels), End::refused, "pixels", 1},
      {"the least of both", bmp({.width = least, .height = least}, pixels), End::refused, "pixels", 1},
      {"pixels behind the end", bmp({.pixels_at = 0xffffffff}, pixels), End::refused, "cannot hold", 1},
      {"3 bits", bmp({.bits = 3}, pixels), End::refused, "pixels of 3 bits", 1},
      {"runs", bmp({.bits = 8, .compression = 1}, pixels), End::refused, "compression 1", 1},
      {"a JPEG inside", bmp({.bits = 0, .compression = 4}, pixels), End::refused, "pixels of 0 bits", 1},
      {"4 billion colours", bmp({.bits = 8, .colors = 0xffffffff}, pixels), End::refused, "colours", 1},
      {"a palette behind the end", bmp({.bits = 8}, pixels), End::refused, "ends too early", 1},
      {"a colour that is not there", bmp({.bits = 8, .colors = 1}, Bytes{0, 0, 0, 0, 9, 9, 9, 9, 9, 9, 9, 9}),
       End::refused, "colour", 1},
      {"a header of 4 GB", bmp({.header_bytes = 0xffffffff}, pixels), End::refused, "a header of", 1},
      {"masks that overlap nothing", bmp({.bits = 32, .compression = 3}, pixels), End::decoded, "", 1},
      {"a mask with a gap", bmp({.bits = 32, .compression = 3}, Bytes{5, 0, 0, 0} + Bytes(24)), End::refused,
       "do not lie together", 1},
      {"two letters", letters("BM"), End::refused, "ends too early", 1},
  });
}

TEST(HostileImageTest, WebpHeadersAreComparedWithTheLimit) {
  const Bytes lossless = golden("lossless.webp"), lossy = golden("lossy.webp");
  Image image;
  try {
    decode_image(lossy, "probe", image);
  } catch (const DataError&) {
    GTEST_SKIP() << "this build lacks libwebp";
  }
  const auto with = [](Bytes bytes, std::size_t at, const Bytes& other) {
    std::copy(other.begin(), other.end(), bytes.begin() + static_cast<std::ptrdiff_t>(at));
    return bytes;
  };
  // 14 bits each of width - 1 and height - 1 behind the signature of a lossless image; 16 bits each in a lossy one.
  expect_outcomes({
      {"lossless, 268 megapixels", with(lossless, 21, {0xff, 0xff, 0xff, 0x0f}), End::refused, "16384 x 16384", 2},
      {"lossless, 99 megapixels", with(lossless, 21, {0xff, 0xff, 0xdd, 0x05}), End::refused, "the limit is 512", 2},
      {"lossy, 268 megapixels", with(lossy, 26, {0xff, 0x3f, 0xff, 0x3f}), End::refused, "16383 x 16383", 2},
      {"cut off", Bytes(lossy.begin(), lossy.begin() + 60), End::refused, "ends too early", 2},
      {"nothing", letters("RIFF") + Bytes{4, 0, 0, 0} + letters("WEBP"), End::refused, "broken WebP", 2},
  });
}

TEST(HostileImageTest, TheLimitIsKeptAndNamed) {
  if (!HEARTH_HAS_PNG || !HEARTH_HAS_JPEG) GTEST_SKIP() << "this build lacks libjpeg-turbo or libpng";
  const Bytes rgb = png({.width = 1'500, .height = 1'000}, 1'000);
  const Bytes rgba = png({.width = 1'500, .height = 1'000, .color = 6}, 1'000);
  const Bytes interlaced = png({.width = 1'500, .height = 1'000, .color = 6, .interlace = 1}, 2'010);
  const Bytes wide = png({.width = 900'000, .height = 1, .bits = 16, .color = 6}, 1);
  // Blocks that end at once: a progressive JPEG needs its coefficients too.
  const Bytes progressive = jpeg_of_scans(2, 1'024) + Bytes(4'096);
  const struct {
    Hostile image;
    std::int64_t limit_mib;
  } cases[] = {
      {{"RGB within", rgb, End::decoded, "", 6}, 5},
      {{"RGB beyond", rgb, End::refused, "1500 x 1000 pixels take 4 MiB; the limit is 4 MiB", 1}, 4},
      {{"RGBA within", rgba, End::decoded, "", 8}, 7},
      {{"RGBA beyond", rgba, End::refused, "1500 x 1000 pixels take 5 MiB", 1}, 5},
      {{"interlaced within", interlaced, End::decoded, "", 8}, 7},
      {{"rows of 16 bits beyond", wide, End::refused, "takes more than 9 MiB of memory to decode: make", 11}, 9},
      {{"progressive beyond", progressive, End::refused, "1024 x 1024 pixels take 6 MiB", 1}, 5},
      {{"progressive within", progressive, End::decoded, "", 8}, 7},
  };
  for (const auto& [image, limit_mib] : cases)
    expect_outcome(image, [&hostile = image, limit = limit_mib * mib] {
      Image decoded;
      decode_image(hostile.bytes, "hostile", decoded, limit);
    });
  Image decoded;
  EXPECT_THROW(decode_image(rgb, "hostile", decoded, 0), UsageError);
}

}  // namespace
}  // namespace hearth::data::hostile_image_test
#endif
