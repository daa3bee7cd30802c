// SPDX-License-Identifier: Apache-2.0
// Decoded images.
#pragma once

#include <cstddef>
#include <cstdint>
#include <iosfwd>
#include <string>
#include <vector>

#include "core/export.h"

namespace hearth::data {

/// 8-bit pixels, rows from the top, channels innermost: pixels[(y * width + x) * channels + c].
struct HEARTH_API Image {
  int height = 0;
  int width = 0;
  int channels = 0;
  std::vector<std::uint8_t> pixels;

  /// Gives the image this size; the pixels' values are unspecified. Memory is kept when it suffices.
  void reshape(int new_height, int new_width, int new_channels);
  std::size_t row_bytes() const { return static_cast<std::size_t>(width) * static_cast<std::size_t>(channels); }
  std::uint8_t* row(int y) { return pixels.data() + static_cast<std::size_t>(y) * row_bytes(); }
  const std::uint8_t* row(int y) const { return pixels.data() + static_cast<std::size_t>(y) * row_bytes(); }
  bool operator==(const Image&) const = default;
};

/// What every image of a set has in common; 0 where images differ.
struct ImageShape {
  int height = 0;
  int width = 0;
  int channels = 0;
  bool operator==(const ImageShape&) const = default;
};
/// "28 x 28 x 1".
HEARTH_API std::ostream& operator<<(std::ostream& out, const ImageShape& shape);

/// Most pixels of an image; a file that claims more is refused before memory is allocated.
inline constexpr std::int64_t max_image_pixels = 100'000'000;

/// Most channels of an image.
inline constexpr int max_image_channels = 64;

/// Writes a grey (1 channel), RGB (3) or RGBA (4) image. FileError if it cannot be written.
HEARTH_API void write_png(const std::string& path, const Image& image);
/// The bytes of such a file. Empty in a build without libpng.
HEARTH_API std::vector<std::uint8_t> encode_png(const Image& image);

}  // namespace hearth::data
