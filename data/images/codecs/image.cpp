// SPDX-License-Identifier: Apache-2.0
#include "data/images/codecs/image.h"

#include <ostream>

#include "core/error.h"

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

std::ostream& operator<<(std::ostream& out, const ImageShape& shape) {
  return out << shape.height << " x " << shape.width << " x " << shape.channels;
}

}  // namespace hearth::data
