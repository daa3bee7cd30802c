// SPDX-License-Identifier: Apache-2.0
// Image files made byte by byte, for tests of what decoders refuse.
#pragma once

#include <gtest/gtest.h>
#include <zlib.h>

#include <algorithm>
#include <concepts>
#include <cstdint>
#include <string>
#include <vector>

#include "data/images/codecs/decode.h"
#include "data/images/codecs/image.h"
#include "data/source/source_bytes.h"
#include "tests/support/places.h"

namespace hearth::test::crafted {

using Bytes = std::vector<std::uint8_t>;

inline Bytes operator+(Bytes left, const Bytes& right) {
  left.insert(left.end(), right.begin(), right.end());
  return left;
}
inline Bytes letters(const std::string& text) { return {text.begin(), text.end()}; }
inline Bytes big_endian(std::integral auto value, int count) {
  Bytes bytes;
  for (int i = count - 1; i >= 0; --i) bytes.push_back(static_cast<std::uint8_t>(value >> (8 * i)));
  return bytes;
}
inline Bytes repeated(const Bytes& part, std::size_t times) {
  Bytes bytes;
  for (std::size_t i = 0; i < times; ++i) bytes = std::move(bytes) + part;
  return bytes;
}
inline Bytes golden(const std::string& name) {
  Bytes bytes;
  data::read_bytes(source_dir() + "/tests/golden/images/" + name, bytes, data::image_limit);
  return bytes;
}

inline Bytes deflated(const Bytes& plain) {
  uLongf size = compressBound(static_cast<uLong>(plain.size()));
  Bytes packed(size);
  EXPECT_EQ(compress2(packed.data(), &size, plain.data(), static_cast<uLong>(plain.size()), 9), Z_OK);
  packed.resize(size);
  return packed;
}

inline Bytes chunk(const std::string& type, const Bytes& body) {
  const Bytes checked = letters(type) + body;
  const auto sum = crc32(0, checked.data(), static_cast<uInt>(checked.size()));
  return big_endian(body.size(), 4) + checked + big_endian(sum, 4);
}

struct PngHeader {
  std::uint32_t width = 1;
  std::uint32_t height = 1;
  std::uint8_t bits = 8;
  std::uint8_t color = 2;  ///< 2 is RGB, 6 RGBA
  std::uint8_t interlace = 0;
};
/// A PNG of zeros that holds `rows` of its rows, with `ancillary` chunks in front of them.
inline Bytes png(const PngHeader& header, std::size_t rows, const Bytes& ancillary = {}) {
  const std::size_t channels = header.color == 2 ? 3 : header.color == 6 ? 4 : 1;
  const std::size_t row = 1 + (header.width * channels * header.bits + 7) / 8;
  return Bytes{0x89, 'P', 'N', 'G', 13, 10, 26, 10} +
         chunk("IHDR", big_endian(header.width, 4) + big_endian(header.height, 4) +
                           Bytes{header.bits, header.color, 0, 0, header.interlace}) +
         ancillary + chunk("IDAT", deflated(Bytes(row * rows))) + chunk("IEND", {});
}
inline Bytes text_bomb(const std::string& type, const Bytes& head, std::size_t inflated) {
  return chunk(type, head + deflated(Bytes(inflated, 'a')));
}

/// A JPEG of tests/golden with another size in its header.
inline Bytes resized_jpeg(const std::string& name, std::uint8_t frame, std::uint16_t height, std::uint16_t width) {
  Bytes jpeg = golden(name);
  const Bytes marker{0xff, frame};
  const auto at = std::search(jpeg.begin(), jpeg.end(), marker.begin(), marker.end());
  EXPECT_LT(at, jpeg.end() - 9);
  const Bytes size = big_endian(height, 2) + big_endian(width, 2);
  std::copy(size.begin(), size.end(), at + 5);
  return jpeg;
}
/// A progressive JPEG of so many scans, 883 at most, each of which adds a bit of one coefficient; a grey square of
/// `side` pixels, a multiple of 8.
inline Bytes jpeg_of_scans(int scans, int side = 8) {
  const auto segment = [](std::uint8_t marker, const Bytes& body) {
    return Bytes{0xff, marker} + big_endian(body.size() + 2, 2) + body;
  };
  // One code of one bit: no difference, or the end of a block.
  const int bits = side / 8 * (side / 8);
  const Bytes blocks = Bytes(static_cast<std::size_t>(bits / 8)) + (bits % 8 ? Bytes{0x7f} : Bytes{});
  const auto codes = [&](std::uint8_t table) { return segment(0xc4, Bytes{table, 1} + Bytes(15) + Bytes{0}); };
  const auto scan = [&](int coefficient, int before, int now) {
    const auto k = static_cast<std::uint8_t>(coefficient);
    return segment(0xda, Bytes{1, 1, 0, k, k, static_cast<std::uint8_t>(before << 4 | now)}) + blocks;
  };
  Bytes jpeg = Bytes{0xff, 0xd8} + segment(0xdb, Bytes{0} + Bytes(64, 1)) +
               segment(0xc2, Bytes{8} + big_endian(side, 2) + big_endian(side, 2) + Bytes{1, 1, 0x11, 0}) +
               codes(0x00) + codes(0x10) + scan(0, 0, 0);
  for (int i = 0; i + 1 < scans; ++i) {
    const int bit = 13 - i % 14;
    jpeg = std::move(jpeg) + scan(1 + i / 14, bit == 13 ? 0 : bit + 1, bit);
  }
  return std::move(jpeg) + Bytes{0xff, 0xd9};
}

/// A BMP of `pixels` whose header says what it is told.
struct BmpHeader {
  std::int32_t width = 2;
  std::int32_t height = 2;
  std::uint16_t bits = 24;
  std::uint32_t compression = 0;
  std::uint32_t colors = 0;
  std::uint32_t header_bytes = 40;
  std::uint32_t pixels_at = 54;
};
inline Bytes bmp(const BmpHeader& header, const Bytes& pixels) {
  const auto little_endian = [](std::integral auto value, int count) {
    Bytes bytes = big_endian(value, count);
    std::reverse(bytes.begin(), bytes.end());
    return bytes;
  };
  const auto four = [&](std::integral auto value) { return little_endian(value, 4); };
  return letters("BM") + Bytes(8) + four(header.pixels_at) + four(header.header_bytes) + four(header.width) +
         four(header.height) + Bytes{1, 0} + little_endian(header.bits, 2) + four(header.compression) + Bytes(12) +
         four(header.colors) + Bytes(4) + pixels;
}

}  // namespace hearth::test::crafted
