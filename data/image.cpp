// SPDX-License-Identifier: Apache-2.0
// Choosing the decoder by a file's first bytes.
#include "hearth/data/image.h"

#include <algorithm>
#include <array>

#include "hearth/core/error.h"
#include "hearth/data/source_bytes.h"

namespace hearth::data {

void Image::reshape(int new_height, int new_width, int new_channels) {
  HEARTH_CHECK(ShapeError,
               new_height >= 0 && new_width >= 0 && new_channels >= 0 && new_channels <= max_image_channels &&
                   static_cast<std::int64_t>(new_height) * new_width <= max_image_pixels,
               "image: ", new_height, " x ", new_width, " x ", new_channels, " is outside 0..", max_image_pixels,
               " pixels of 0..", max_image_channels, " channels");
  height = new_height;
  width = new_width;
  channels = new_channels;
  pixels.resize(static_cast<std::size_t>(new_height) * row_bytes());
}

void decode_image(std::span<const std::uint8_t> bytes, const std::string& name, Image& image) {
  constexpr std::array<std::uint8_t, 3> jpeg{0xff, 0xd8, 0xff};
  constexpr std::array<std::uint8_t, 4> png{0x89, 'P', 'N', 'G'};
  const auto begins_with = [&](const auto& magic) {
    return bytes.size() >= magic.size() && std::equal(magic.begin(), magic.end(), bytes.begin());
  };
  if (begins_with(jpeg)) return decode_jpeg(bytes, name, image);
  if (begins_with(png)) return decode_png(bytes, name, image);
  throw DataError(name + (bytes.empty() ? ": the file is empty" : ": neither JPEG nor PNG"));
}

Image decode_image(const std::string& path) {
  std::vector<std::uint8_t> bytes;
  read_bytes(path, bytes);
  Image image;
  decode_image(bytes, path, image);
  return image;
}

}  // namespace hearth::data
