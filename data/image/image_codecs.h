// SPDX-License-Identifier: Apache-2.0
// The decoders behind decode_image(), one a format, and the checks that they share.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "data/image/image.h"

namespace hearth::data {

/// An image file in memory.
struct EncodedImage {
  std::span<const std::uint8_t> bytes;
  const std::string& name;    ///< for messages
  std::int64_t memory_limit;  ///< that decoding may take, in bytes
};

/// Decodes to RGB. DataError as of decode_image(), and naming the library where the build lacks it.
void decode_jpeg(const EncodedImage& file, Image& image);
void decode_png(const EncodedImage& file, Image& image);
void decode_webp(const EncodedImage& file, Image& image);
void decode_bmp(const EncodedImage& file, Image& image);

/// Turns RGBA into RGB where it lies.
void composite_on_white(Image& image);

/// DataError unless the image has pixels, no more than max_image_pixels, and so many bytes for each of them and
/// `further_bytes` are within the limit.
void require_decodable(const EncodedImage& file, std::int64_t width, std::int64_t height, std::int64_t bytes_a_pixel,
                       std::int64_t further_bytes = 0);
/// The DataError for a decoder that went beyond the limit.
[[noreturn]] void refuse_memory(const EncodedImage& file);
/// The DataError for a header that claims more than a file of this length can hold.
[[noreturn]] void refuse_claim(const EncodedImage& file, std::int64_t width, std::int64_t height);

}  // namespace hearth::data
