// SPDX-License-Identifier: Apache-2.0
// Decoded images, and the JPEG, PNG, WebP and BMP files they come from. Decoding goes by content, never by file name.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "core/io/file.h"
#include "data/image/sizing.h"

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

/// Most pixels of an image; a file that claims more is refused before memory is allocated.
inline constexpr std::int64_t max_image_pixels = 100'000'000;

/// Default of the most memory that decoding one image may take, in bytes: its pixels and what the decoder holds beside
/// them. The file's own bytes do not count.
inline constexpr std::int64_t default_decode_bytes = std::int64_t{512} << 20;

/// Most bytes of an image's file.
inline constexpr ReadLimit image_limit{std::uint64_t{256} << 20, "images"};

/// Most channels of an image.
inline constexpr int max_image_channels = 64;

/// Decodes a JPEG, PNG, WebP or BMP file to RGB and turns it upright as its EXIF orientation says, which is returned (1
/// to 8; 1 where nothing was turned). Grey becomes three equal channels, palettes are looked up, alpha is composited on
/// white, 16 bits are scaled to 8, CMYK and YCCK become RGB. Colour profiles are not applied.
/// DataError with `name` and the reason for anything truncated, corrupt or of another format, for more than
/// max_image_pixels, for what would take more than `memory_limit` bytes, and for a header that claims more pixels than
/// a file of this length can hold. The last three are found before pixels are allocated.
HEARTH_API int decode_image(std::span<const std::uint8_t> bytes, const std::string& name, Image& image,
                            std::int64_t memory_limit = default_decode_bytes);
/// As decode_image(), but of no more than the resize needs that `choose` answers with when the header is read: `image`
/// becomes a part of the upright image, perhaps at a smaller scale. What lies behind it in the file may go undecoded,
/// and faults there unnoticed. The limits are those of the whole image, whatever the part.
///
/// The pixels are those of the whole image, but for a JPEG that `sizing.scaled_decoding` allows to be decoded at a
/// smaller scale; they are then those of the whole image at that scale (the inverse DCT of fewer coefficients).
HEARTH_API Region decode_region(std::span<const std::uint8_t> bytes, const std::string& name,
                                const ChooseSizing& choose, Image& image,
                                std::int64_t memory_limit = default_decode_bytes);
/// The region of an image that is decoded whole: the box that `choose` answers with.
HEARTH_API Region region_of_whole(const Image& image, const ChooseSizing& choose);
/// As decode_image(), from a file. FileError if it cannot be read.
HEARTH_API Image decode_image(const std::string& path, std::int64_t memory_limit = default_decode_bytes);

/// Writes a grey (1 channel), RGB (3) or RGBA (4) image. FileError if it cannot be written.
HEARTH_API void write_png(const std::string& path, const Image& image);
/// The bytes of such a file. Empty in a build without libpng.
HEARTH_API std::vector<std::uint8_t> encode_png(const Image& image);

}  // namespace hearth::data
