// SPDX-License-Identifier: Apache-2.0
// The changes on 8-bit pixels, in the conventions of Pillow.
#include "data/images/transforms/rand_augment.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

#include "core/error.h"
#include "data/images/transforms/color.h"
#include "data/images/transforms/warp.h"

namespace hearth::data {
namespace {

constexpr double pi = 3.14159265358979323846;
constexpr double strongest = 10;

using Table = std::array<std::uint8_t, 256>;
using Counts = std::array<std::int64_t, 256>;

Counts counts_of(const Image& image, int channel) {
  Counts counts{};
  for (auto i = static_cast<std::size_t>(channel); i < image.pixels.size();
       i += static_cast<std::size_t>(image.channels))
    ++counts[image.pixels[i]];
  return counts;
}

void look_up(Image& image, int channel, const Table& table) {
  for (auto i = static_cast<std::size_t>(channel); i < image.pixels.size();
       i += static_cast<std::size_t>(image.channels))
    image.pixels[i] = table[image.pixels[i]];
}

// The table of value -> f(value), clipped.
template <class F>
Table table_of(const F& f) {
  Table table;
  for (int value = 0; value < 256; ++value)
    table[static_cast<std::size_t>(value)] = static_cast<std::uint8_t>(std::clamp<std::int64_t>(f(value), 0, 255));
  return table;
}

// The least value of a channel becomes 0 and the greatest 255.
Table stretching(const Counts& counts) {
  int low = 0, high = 255;
  while (low < 255 && counts[static_cast<std::size_t>(low)] == 0) ++low;
  while (high > 0 && counts[static_cast<std::size_t>(high)] == 0) --high;
  const double scale = high > low ? 255.0 / (high - low) : 1.0, offset = high > low ? -low * scale : 0.0;
  return table_of([&](int value) { return static_cast<std::int64_t>(value * scale + offset); });
}

// Values are spread so that each range holds as many pixels as the others, as far as that goes.
Table equalizing(const Counts& counts) {
  std::int64_t total = 0, last = 0;
  for (const std::int64_t count : counts) {
    total += count;
    last = count > 0 ? count : last;
  }
  const std::int64_t step = (total - last) / 255;
  std::int64_t below = step / 2;
  return table_of([&](int value) -> std::int64_t {
    if (step == 0) return value;
    return std::exchange(below, below + counts[static_cast<std::size_t>(value)]) / step;
  });
}

// Each pixel blended with a weighted mean of its surroundings; the border stays.
void sharpen(Image& image, Image& scratch, int factor) {
  scratch = image;
  const auto channels = static_cast<std::size_t>(image.channels);
  for (int y = 1; y + 1 < image.height; ++y)
    for (std::size_t i = channels; i + channels < image.row_bytes(); ++i) {
      int sum = 4 * scratch.row(y)[i];
      for (int row = y - 1; row <= y + 1; ++row)
        sum += scratch.row(row)[i - channels] + scratch.row(row)[i] + scratch.row(row)[i + channels];
      image.row(y)[i] = blend(scratch.row(y)[i], (sum + 6) / 13, factor);
    }
}

void move(Image& image, Image& scratch, const AffineMap& map, const std::vector<std::uint8_t>& fill) {
  scratch.reshape(image.height, image.width, image.channels);
  warp(image, map, fill, scratch);
  std::swap(image, scratch);
}

AffineMap rotation(const Image& image, double degrees) {
  // 15 digits, as Pillow has it: so that quarters of a turn hit their pixels.
  const auto rounded = [](double value) { return std::round(value * 1e15) / 1e15; };
  const double cosine = rounded(std::cos(degrees * pi / 180)), sine = rounded(std::sin(degrees * pi / 180));
  const double x = image.width / 2.0, y = image.height / 2.0;
  return {cosine, -sine, x - cosine * x + sine * y, sine, cosine, y - sine * x - cosine * y};
}

}  // namespace

double augment_strength(AugmentOp op, double level, bool increasing, bool mirrored) {
  const double part = level / strongest, sign = mirrored ? -1.0 : 1.0;
  switch (op) {
    case AugmentOp::identity:
    case AugmentOp::auto_contrast:
    case AugmentOp::equalize:
      return 0;
    case AugmentOp::rotate:
      return sign * 30 * part;
    case AugmentOp::solarize: {
      const double threshold = std::floor(256 * part);
      return increasing ? 256 - threshold : threshold;
    }
    case AugmentOp::posterize:
      return std::max(increasing ? 4 - std::floor(4 * part) : std::floor(4 * part), 1.0);
    case AugmentOp::color:
    case AugmentOp::contrast:
    case AugmentOp::brightness:
    case AugmentOp::sharpness:
      return increasing ? 1 + sign * 0.9 * part : 0.1 + 1.8 * part;
    case AugmentOp::shear_x:
    case AugmentOp::shear_y:
      return sign * 0.3 * part;
    case AugmentOp::translate_x:
    case AugmentOp::translate_y:
      return sign * 0.45 * part;
  }
  return 0;
}

void apply_augment_op(Image& image, Image& scratch, AugmentOp op, double strength,
                      const std::vector<std::uint8_t>& fill) {
  HEARTH_CHECK(ShapeError, image.channels == 1 || image.channels == 3, "rand_augment: an image of ", image.channels,
               " channels; 1 or 3 are possible");
  HEARTH_CHECK(ShapeError, fill.size() == static_cast<std::size_t>(image.channels), "rand_augment: ", fill.size(),
               " values to fill ", image.channels, " channels with; one a channel is needed");
  if (image.pixels.empty()) return;
  const auto look_up_each = [&](const auto& table_for) {
    for (int c = 0; c < image.channels; ++c) look_up(image, c, table_for(counts_of(image, c)));
  };
  const auto look_up_all = [&](const Table& table) {
    for (std::uint8_t& value : image.pixels) value = table[value];
  };
  switch (op) {
    case AugmentOp::identity:
      return;
    case AugmentOp::auto_contrast:
      return look_up_each(stretching);
    case AugmentOp::equalize:
      return look_up_each(equalizing);
    case AugmentOp::rotate:
      return move(image, scratch, rotation(image, strength), fill);
    case AugmentOp::solarize:
      return look_up_all(table_of([&](int v) { return v < strength ? v : 255 - v; }));
    case AugmentOp::color:
      if (image.channels == 3) change_saturation(image, fixed_point(strength));
      return;
    case AugmentOp::posterize: {
      const int lost = 8 - std::clamp(static_cast<int>(strength), 0, 8);
      return look_up_all(table_of([&](int v) { return v >> lost << lost; }));
    }
    case AugmentOp::contrast:
      return change_contrast(image, fixed_point(strength));
    case AugmentOp::brightness:
      return blend_with(image, 0, fixed_point(strength));
    case AugmentOp::sharpness:
      return sharpen(image, scratch, fixed_point(strength));
    case AugmentOp::shear_x:
      return move(image, scratch, {1, strength, 0, 0, 1, 0}, fill);
    case AugmentOp::shear_y:
      return move(image, scratch, {1, 0, 0, strength, 1, 0}, fill);
    case AugmentOp::translate_x:
      return move(image, scratch, {1, 0, strength * image.width, 0, 1, 0}, fill);
    case AugmentOp::translate_y:
      return move(image, scratch, {1, 0, 0, 0, 1, strength * image.height}, fill);
  }
}

void rand_augment(Image& image, Image& scratch, const RandAugment& options, const std::vector<std::uint8_t>& fill,
                  Random& random) {
  for (int i = 0; i < options.ops; ++i) {
    const auto op = static_cast<AugmentOp>(random.below(augment_ops));
    const bool applied = random.uniform() < options.probability, mirrored = random.below(2) == 1;
    const double level = std::clamp(options.magnitude + options.spread * random.normal(), 0.0, strongest);
    if (applied) apply_augment_op(image, scratch, op, augment_strength(op, level, options.increasing, mirrored), fill);
  }
}

}  // namespace hearth::data
