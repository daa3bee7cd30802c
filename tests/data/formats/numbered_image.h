// SPDX-License-Identifier: Apache-2.0
// Images that differ by their number.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>

#include "data/images/codecs/image.h"

namespace hearth::test {

/// Writes a PNG of 9 to 13 rows and 12 columns, and the folders above it.
inline void write_numbered_image(const std::filesystem::path& path, int number) {
  std::filesystem::create_directories(path.parent_path());
  data::Image image;
  image.reshape(9 + number % 5, 12, 3);
  for (std::size_t k = 0; k < image.pixels.size(); ++k)
    image.pixels[k] = static_cast<std::uint8_t>(k * 7 + static_cast<std::size_t>(number) * 13);
  data::write_png(path, image);
}

}  // namespace hearth::test
