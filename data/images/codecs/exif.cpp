// SPDX-License-Identifier: Apache-2.0
// Walks markers and chunks to the EXIF block and its first directory (EXIF 2.32, 4.6; TIFF 6.0). Nothing that these
// claim is trusted: what lies outside of the bytes at hand is not there.
#include "data/images/codecs/exif.h"

#include <algorithm>
#include <cstddef>
#include <string_view>
#include <utility>

#include "core/error.h"

namespace hearth::data {
namespace {

using Bytes = std::span<const std::uint8_t>;

/// `size` bytes from `at` on, or as many as there are.
Bytes part(Bytes bytes, std::uint64_t at, std::uint64_t size) {
  const std::uint64_t begin = std::min<std::uint64_t>(at, bytes.size());
  return bytes.subspan(begin, std::min<std::uint64_t>(size, bytes.size() - begin));
}

/// A number of `size` bytes; 0 where the bytes end before.
std::uint32_t number(Bytes bytes, std::uint64_t at, int size, bool big_endian) {
  const Bytes digits = part(bytes, at, static_cast<std::uint64_t>(size));
  if (digits.size() != static_cast<std::size_t>(size)) return 0;
  std::uint32_t value = 0;
  for (std::size_t i = 0; i < digits.size(); ++i) value = value << 8 | digits[big_endian ? i : digits.size() - 1 - i];
  return value;
}

bool begins_with(Bytes bytes, std::string_view text) {
  return bytes.size() >= text.size() && std::equal(text.begin(), text.end(), bytes.begin(), [](char a, std::uint8_t b) {
           return static_cast<std::uint8_t>(a) == b;
         });
}

constexpr std::string_view exif_prefix{"Exif\0\0", 6};

/// The TIFF structure in the EXIF segment of a JPEG.
Bytes tiff_of_jpeg(Bytes file) {
  std::uint64_t at = 2;
  while (at + 4 <= file.size() && file[at] == 0xff) {
    const std::uint8_t marker = file[at + 1];
    if (marker == 0xff) {
      ++at;  // fill
      continue;
    }
    if (marker == 0xda || marker == 0xd9) break;  // pixels, the end
    const std::uint64_t length = number(file, at + 2, 2, true);
    if (length < 2) break;
    const Bytes body = part(file, at + 4, length - 2);
    if (marker == 0xe1 && begins_with(body, exif_prefix)) return body.subspan(exif_prefix.size());
    at += 2 + length;
  }
  return {};
}

Bytes tiff_of_png(Bytes file) {
  for (std::uint64_t at = 8; at + 12 <= file.size();) {
    const std::uint64_t length = number(file, at, 4, true);
    if (begins_with(part(file, at + 4, 4), "eXIf")) return part(file, at + 8, length);
    at += 12 + length;
  }
  return {};
}

Bytes tiff_of_webp(Bytes file) {
  for (std::uint64_t at = 12; at + 8 <= file.size();) {
    const std::uint64_t length = number(file, at + 4, 4, false);
    if (begins_with(part(file, at, 4), "EXIF")) {
      const Bytes body = part(file, at + 8, length);
      return begins_with(body, exif_prefix) ? body.subspan(exif_prefix.size()) : body;
    }
    at += 8 + length + length % 2;
  }
  return {};
}

int orientation_in(Bytes tiff) {
  const bool big_endian = begins_with(tiff, "MM");
  if (!big_endian && !begins_with(tiff, "II")) return 1;
  if (number(tiff, 2, 2, big_endian) != 42) return 1;
  const std::uint64_t directory = number(tiff, 4, 4, big_endian);
  const std::uint32_t entries = number(tiff, directory, 2, big_endian);
  for (std::uint32_t i = 0; i < entries; ++i) {
    const std::uint64_t entry = directory + 2 + std::uint64_t{12} * i;
    if (entry + 12 > tiff.size()) break;
    constexpr std::uint32_t orientation_tag = 0x0112, of_16_bits = 3;
    if (number(tiff, entry, 2, big_endian) != orientation_tag) continue;
    const std::uint32_t value = number(tiff, entry + 8, 2, big_endian);
    return number(tiff, entry + 2, 2, big_endian) == of_16_bits && value >= 1 && value <= 8 ? static_cast<int>(value)
                                                                                            : 1;
  }
  return 1;
}

}  // namespace

int exif_orientation(Bytes file) {
  if (begins_with(file, "\xff\xd8")) return orientation_in(tiff_of_jpeg(file));
  if (begins_with(file, "\x89PNG")) return orientation_in(tiff_of_png(file));
  if (begins_with(file, "RIFF")) return orientation_in(tiff_of_webp(file));
  return 1;
}

OrientationAxes axes_of(int orientation) {
  HEARTH_CHECK(UsageError, orientation >= 1 && orientation <= 8, "an orientation of ", orientation, "; 1 to 8 exist");
  const bool swapped = orientation >= 5;
  const bool last_row = orientation == 3 || orientation == 4 || orientation == 6 || orientation == 7;
  const bool last_column = orientation == 2 || orientation == 3 || orientation == 7 || orientation == 8;
  // By the rows and columns of the stored image; the upright image's rows are the columns where they are swapped.
  return {swapped, swapped ? last_column : last_row, swapped ? last_row : last_column};
}

void make_upright(Image& image, int orientation) {
  const OrientationAxes axes = axes_of(orientation);
  if (orientation == 1) return;
  // The next image of the thread asks for no memory.
  thread_local Image upright;
  upright.reshape(axes.swapped ? image.width : image.height, axes.swapped ? image.height : image.width, image.channels);
  for (int y = 0; y < upright.height; ++y) {
    std::uint8_t* to = upright.row(y);
    for (int x = 0; x < upright.width; ++x, to += image.channels) {
      const int from_y = axes.from_below ? upright.height - 1 - y : y;
      const int from_x = axes.from_right ? upright.width - 1 - x : x;
      const std::uint8_t* from = image.row(axes.swapped ? from_x : from_y) +
                                 static_cast<std::ptrdiff_t>(axes.swapped ? from_y : from_x) * image.channels;
      std::copy_n(from, image.channels, to);
    }
  }
  std::swap(image, upright);
}

}  // namespace hearth::data
