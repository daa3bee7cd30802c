// SPDX-License-Identifier: Apache-2.0
// Images as files for packing; encode_png() is in data/images/codecs/image.h.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "data/images/codecs/image.h"

namespace hearth::data {

/// A JPEG file of a grey or RGB image, of quality 1 to 100 as libjpeg scales it, with colours at full resolution from
/// 90 on and at half below. ShapeError for other channels, or more than 65,500 pixels a side; DataError in a build
/// without libjpeg.
std::vector<std::uint8_t> encode_jpeg(const Image& image, int quality);

/// "jpg", "png", "webp" or "bmp", by the first bytes of a file; "bin" for another.
const char* ending_of(std::span<const std::uint8_t> file);

}  // namespace hearth::data
