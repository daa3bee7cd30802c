// SPDX-License-Identifier: Apache-2.0
#include "data/images/contact_sheet.h"

#include <algorithm>
#include <cmath>

#include "core/cpu/parallel.h"
#include "core/error.h"
#include "data/images/transforms/resize.h"

namespace hearth::data {
namespace {

constexpr int gap = 4;
constexpr std::uint8_t background = 128;

/// Puts an image into the middle of the square at (top, left); grey and other channels become RGB.
void place(const Image& image, int side, int top, int left, Image& sheet) {
  const double scale = std::min(1.0 * side / image.height, 1.0 * side / image.width);
  const auto scaled = [&](int extent) { return std::clamp(static_cast<int>(std::lround(extent * scale)), 1, side); };
  Image fitted;
  resize(image, {0, 0, image.height, image.width}, scaled(image.height), scaled(image.width), fitted);
  top += (side - fitted.height) / 2, left += (side - fitted.width) / 2;
  for (int y = 0; y < fitted.height; ++y)
    for (int x = 0; x < fitted.width; ++x)
      for (int c = 0; c < 3; ++c)
        sheet.row(top + y)[3 * (left + x) + c] = fitted.row(y)[fitted.channels * x + (fitted.channels >= 3 ? c : 0)];
}

}  // namespace

std::vector<std::int64_t> spread_samples(std::int64_t size, std::int64_t most) {
  const std::int64_t count = std::min(size, most);
  std::vector<std::int64_t> samples;
  for (std::int64_t i = 0; i < count; ++i) samples.push_back(i * size / count);
  return samples;
}

Image contact_sheet(const ImageDataset& images, const std::vector<std::int64_t>& samples, int side) {
  return contact_sheet(samples, side, [&](std::int64_t sample, Image& image) { images.read(sample, image); });
}

Image contact_sheet(const std::vector<std::int64_t>& samples, int side,
                    const std::function<void(std::int64_t sample, Image& image)>& read) {
  HEARTH_CHECK(UsageError, !samples.empty() && side >= 1, "contact sheet: ", samples.size(), " samples of ", side,
               " pixels");
  const auto count = static_cast<std::int64_t>(samples.size());
  const auto columns = static_cast<std::int64_t>(std::ceil(std::sqrt(static_cast<double>(count))));
  const std::int64_t rows = (count + columns - 1) / columns, pitch = side + gap;
  const std::int64_t height = rows * pitch + gap, width = columns * pitch + gap;
  HEARTH_CHECK(UsageError, height <= max_image_pixels / width, "contact sheet: ", count, " samples of ", side,
               " pixels are more than an image may have; ask for fewer");
  Image sheet;
  sheet.reshape(static_cast<int>(height), static_cast<int>(width), 3);
  std::ranges::fill(sheet.pixels, background);
  cpu::parallel_chunks(count, [&](std::int64_t i) {
    const int top = static_cast<int>(gap + i / columns * pitch), left = static_cast<int>(gap + i % columns * pitch);
    Image image;
    try {
      read(samples[static_cast<std::size_t>(i)], image);
    } catch (const OutOfMemory&) {
      throw;
    } catch (const Error&) {
      image.reshape(1, 1, 3);
      image.pixels = {200, 0, 0};
    }
    place(image, side, top, left, sheet);
  });
  return sheet;
}

}  // namespace hearth::data
