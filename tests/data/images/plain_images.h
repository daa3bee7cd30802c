// SPDX-License-Identifier: Apache-2.0
// Images that tests make.
#pragma once

#include <algorithm>
#include <cstdint>

#include "core/random.h"
#include "data/images/codecs/image.h"

namespace hearth::data {

/// Random pixels, the same for the same seed.
inline Image noise(int height, int width, int channels, std::uint64_t seed = 1) {
  Image image;
  image.reshape(height, width, channels);
  Random random(seed, 0);
  for (auto& value : image.pixels) value = static_cast<std::uint8_t>(random.below(256));
  return image;
}

/// Every value the same.
inline Image constant(int height, int width, int channels, std::uint8_t value) {
  Image image;
  image.reshape(height, width, channels);
  std::fill(image.pixels.begin(), image.pixels.end(), value);
  return image;
}

}  // namespace hearth::data
