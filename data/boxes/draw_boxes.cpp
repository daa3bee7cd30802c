// SPDX-License-Identifier: Apache-2.0
#include "data/boxes/draw_boxes.h"

#include <algorithm>
#include <cstddef>
#include <iterator>

namespace hearth::data {
namespace {

/// Colours that neighbours in number do not share.
constexpr std::array<std::uint8_t, 3> box_colours[] = {{255, 64, 64},  {64, 200, 64},  {80, 120, 255}, {255, 200, 0},
                                                       {255, 80, 255}, {0, 220, 220},  {255, 140, 40}, {170, 100, 255},
                                                       {170, 230, 0},  {255, 150, 180}};

}  // namespace

void draw_box(Image& image, const std::array<double, 4>& corners, std::int64_t label, bool is_dashed) {
  const auto& colour = box_colours[static_cast<std::size_t>(label) % std::size(box_colours)];
  const auto place = [](double value, int extent) {
    return static_cast<int>(std::clamp(value, 0.0, static_cast<double>(extent - 1)));
  };
  const int left = place(corners[0], image.width), right = place(corners[2] - 1e-6, image.width);
  const int top = place(corners[1], image.height), bottom = place(corners[3] - 1e-6, image.height);
  const auto put = [&](int y, int x) {
    if (is_dashed && (x + y) / 3 % 2 == 1) return;
    std::copy(colour.begin(), colour.end(), image.row(y) + 3 * static_cast<std::ptrdiff_t>(x));
  };
  for (int x = left; x <= right; ++x) put(top, x), put(bottom, x);
  for (int y = top; y <= bottom; ++y) put(y, left), put(y, right);
}

}  // namespace hearth::data
