// SPDX-License-Identifier: Apache-2.0
// Images from JPEG, PNG, WebP and BMP files. Decoding goes by content, never by file name.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "core/export.h"
#include "core/io/file.h"
#include "data/images/codecs/image.h"
#include "data/images/codecs/sizing.h"

namespace hearth::data {

/// Default of the most memory that decoding one image may take, in bytes: its pixels and what the decoder holds beside
/// them. The file's own bytes do not count.
inline constexpr std::int64_t default_decode_bytes = std::int64_t{512} << 20;

/// Most bytes of an image's file.
inline constexpr ReadLimit image_limit{std::uint64_t{256} << 20, "images"};

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

}  // namespace hearth::data
