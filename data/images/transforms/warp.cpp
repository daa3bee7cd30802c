// SPDX-License-Identifier: Apache-2.0
#include "data/images/transforms/warp.h"

#include <algorithm>

#include "core/error.h"

namespace hearth::data {

void warp(const Image& source, const AffineMap& map, std::span<const std::uint8_t> fill, Image& target) {
  const int channels = source.channels;
  HEARTH_CHECK(ShapeError, target.channels == channels && fill.size() == static_cast<std::size_t>(channels),
               "warp: from ", channels, " channels to ", target.channels, ", filled with ", fill.size(),
               " values; all three are to be equal");
  for (int y = 0; y < target.height; ++y)
    for (int x = 0; x < target.width; ++x) {
      std::uint8_t* const to = target.row(y) + x * channels;
      const double source_x = map.a * (x + 0.5) + map.b * (y + 0.5) + map.c;
      const double source_y = map.d * (x + 0.5) + map.e * (y + 0.5) + map.f;
      if (!(source_x >= 0 && source_x < source.width && source_y >= 0 && source_y < source.height)) {
        std::copy_n(fill.begin(), channels, to);
        continue;
      }
      // Both lie above -1, so that the integer part of one more is the floor.
      const int left = static_cast<int>(source_x + 0.5) - 1, top = static_cast<int>(source_y + 0.5) - 1;
      const double right_share = source_x - 0.5 - left, lower_share = source_y - 0.5 - top;
      const int x0 = std::max(left, 0) * channels, x1 = std::min(left + 1, source.width - 1) * channels;
      const std::uint8_t* const upper = source.row(std::max(top, 0));
      const std::uint8_t* const lower = source.row(std::min(top + 1, source.height - 1));
      for (int c = 0; c < channels; ++c) {
        const auto between = [&](const std::uint8_t* row) {
          return row[x0 + c] + (row[x1 + c] - row[x0 + c]) * right_share;
        };
        const double above = between(upper);
        to[c] = static_cast<std::uint8_t>(above + (between(lower) - above) * lower_share + 0.5);
      }
    }
}

}  // namespace hearth::data
