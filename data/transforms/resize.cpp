// SPDX-License-Identifier: Apache-2.0
// The resize is separable: columns first, then rows, each with weights worked out once an axis.
#include "data/transforms/resize.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <utility>

#include "core/error.h"

namespace hearth::data {
namespace {

constexpr int weight_bits = 22;

// For every output position, the first input it uses and its weights, `most` slots each.
struct Weights {
  int most = 0;
  std::vector<int> first;
  std::vector<int> count;
  std::vector<std::int32_t> values;
};

Weights triangle_weights(int from, int to) {
  const double scale = static_cast<double>(from) / to;
  const double reach = std::max(scale, 1.0);
  Weights weights;
  weights.most = 2 * static_cast<int>(std::ceil(reach)) + 1;
  weights.first.resize(static_cast<std::size_t>(to));
  weights.count.resize(static_cast<std::size_t>(to));
  weights.values.assign(static_cast<std::size_t>(to) * static_cast<std::size_t>(weights.most), 0);
  std::vector<double> exact(static_cast<std::size_t>(weights.most));
  for (int i = 0; i < to; ++i) {
    const double center = (i + 0.5) * scale;
    const int first = std::max(static_cast<int>(center - reach + 0.5), 0);
    const int count = std::min(static_cast<int>(center + reach + 0.5), from) - first;
    double total = 0;
    for (int k = 0; k < count; ++k) {
      const double distance = std::abs((k + first - center + 0.5) * (1.0 / reach));
      exact[static_cast<std::size_t>(k)] = std::max(1.0 - distance, 0.0);
      total += exact[static_cast<std::size_t>(k)];
    }
    std::int32_t* row = weights.values.data() + static_cast<std::ptrdiff_t>(i) * weights.most;
    for (int k = 0; k < count; ++k) {
      row[k] = static_cast<std::int32_t>(0.5 + exact[static_cast<std::size_t>(k)] * (1.0 / total) * (1 << weight_bits));
    }
    weights.first[static_cast<std::size_t>(i)] = first;
    weights.count[static_cast<std::size_t>(i)] = count;
  }
  return weights;
}

std::uint8_t rounded(std::int32_t sum) { return static_cast<std::uint8_t>(std::clamp(sum >> weight_bits, 0, 255)); }

constexpr std::int32_t half = 1 << (weight_bits - 1);

template <int channels>
void resize_columns(const std::uint8_t* row, const Weights& weights, int width, std::uint8_t* out) {
  for (int x = 0; x < width; ++x) {
    const std::int32_t* w = weights.values.data() + static_cast<std::ptrdiff_t>(x) * weights.most;
    const std::uint8_t* in = row + static_cast<std::ptrdiff_t>(weights.first[static_cast<std::size_t>(x)]) * channels;
    std::int32_t sums[channels];
    for (int c = 0; c < channels; ++c) sums[c] = half;
    for (int k = 0; k < weights.count[static_cast<std::size_t>(x)]; ++k) {
      for (int c = 0; c < channels; ++c) sums[c] += in[k * channels + c] * w[k];
    }
    for (int c = 0; c < channels; ++c) out[x * channels + c] = rounded(sums[c]);
  }
}

void resize_columns_any(const std::uint8_t* row, const Weights& weights, int width, int channels, std::uint8_t* out) {
  for (int x = 0; x < width; ++x) {
    const std::int32_t* w = weights.values.data() + static_cast<std::ptrdiff_t>(x) * weights.most;
    const std::uint8_t* in = row + static_cast<std::ptrdiff_t>(weights.first[static_cast<std::size_t>(x)]) * channels;
    for (int c = 0; c < channels; ++c) {
      std::int32_t sum = half;
      for (int k = 0; k < weights.count[static_cast<std::size_t>(x)]; ++k) sum += in[k * channels + c] * w[k];
      out[x * channels + c] = rounded(sum);
    }
  }
}

void resize_rows(const std::uint8_t* rows, std::size_t row_bytes, const Weights& weights, Image& target) {
  std::vector<std::int32_t> sums(row_bytes);
  for (int y = 0; y < target.height; ++y) {
    const std::int32_t* w = weights.values.data() + static_cast<std::ptrdiff_t>(y) * weights.most;
    const std::uint8_t* in = rows + static_cast<std::size_t>(weights.first[static_cast<std::size_t>(y)]) * row_bytes;
    std::fill(sums.begin(), sums.end(), half);
    for (int k = 0; k < weights.count[static_cast<std::size_t>(y)]; ++k, in += row_bytes) {
      for (std::size_t i = 0; i < row_bytes; ++i) sums[i] += in[i] * w[k];
    }
    std::uint8_t* out = target.row(y);
    for (std::size_t i = 0; i < row_bytes; ++i) out[i] = rounded(sums[i]);
  }
}

}  // namespace

void resize(const Image& source, Box box, int height, int width, Image& target) {
  HEARTH_CHECK(ShapeError,
               box.top >= 0 && box.left >= 0 && box.height > 0 && box.width > 0 &&
                   box.height <= source.height - box.top && box.width <= source.width - box.left,
               "resize: the box of ", box.height, " x ", box.width, " at (", box.top, ", ", box.left,
               ") is empty or leaves the image of ", source.height, " x ", source.width);
  HEARTH_CHECK(ShapeError, height > 0 && width > 0, "resize: to ", height, " x ", width, " pixels");
  HEARTH_CHECK(UsageError, &source != &target, "resize: source and target are the same image");
  target.reshape(height, width, source.channels);
  const int channels = source.channels;
  const Weights vertical = triangle_weights(box.height, height);
  const std::size_t row_bytes = target.row_bytes();
  std::vector<std::uint8_t> narrowed(static_cast<std::size_t>(box.height) * row_bytes);
  const Weights horizontal = triangle_weights(box.width, width);
  for (int y = 0; y < box.height; ++y) {
    const std::uint8_t* row = source.row(box.top + y) + static_cast<std::ptrdiff_t>(box.left) * channels;
    std::uint8_t* out = narrowed.data() + static_cast<std::size_t>(y) * row_bytes;
    if (box.width == width)
      std::memcpy(out, row, row_bytes);
    else if (channels == 3)
      resize_columns<3>(row, horizontal, width, out);
    else if (channels == 1)
      resize_columns<1>(row, horizontal, width, out);
    else
      resize_columns_any(row, horizontal, width, channels, out);
  }
  if (box.height == height)
    std::copy(narrowed.begin(), narrowed.end(), target.pixels.begin());
  else
    resize_rows(narrowed.data(), row_bytes, vertical, target);
}

void resize_shorter_side(const Image& source, Box box, int side, Image& target) {
  const std::int64_t shorter = std::min(box.height, box.width), longer = std::max(box.height, box.width);
  HEARTH_CHECK(ShapeError, shorter > 0 && longer * side / shorter <= max_image_pixels, "resize: the part of ",
               box.height, " x ", box.width, " to a shorter side of ", side, " pixels is empty or too large; of ",
               max_image_pixels, " pixels at most");
  const auto scaled = [&](int extent) { return static_cast<int>(extent * std::int64_t{side} / shorter); };
  resize(source, box, scaled(box.height), scaled(box.width), target);
}

void crop(const Image& source, Box box, std::uint8_t fill, Image& target) {
  HEARTH_CHECK(UsageError, &source != &target, "crop: source and target are the same image");
  target.reshape(box.height, box.width, source.channels);
  const int from = std::clamp(-box.left, 0, box.width);
  const int to = std::clamp(source.width - box.left, from, box.width);
  const auto channels = static_cast<std::size_t>(source.channels);
  for (int y = 0; y < box.height; ++y) {
    std::uint8_t* out = target.row(y);
    const int row = box.top + y;
    if (row < 0 || row >= source.height || from == to) {
      std::memset(out, fill, target.row_bytes());
      continue;
    }
    const std::size_t begin = static_cast<std::size_t>(from) * channels;
    const std::size_t end = static_cast<std::size_t>(to) * channels;
    std::memset(out, fill, begin);
    std::memcpy(out + begin, source.row(row) + static_cast<std::size_t>(box.left + from) * channels, end - begin);
    std::memset(out + end, fill, target.row_bytes() - end);
  }
}

void flip_horizontally(Image& image) {
  const int channels = image.channels;
  for (int y = 0; y < image.height; ++y) {
    std::uint8_t* row = image.row(y);
    for (int left = 0, right = image.width - 1; left < right; ++left, --right) {
      for (int c = 0; c < channels; ++c) std::swap(row[left * channels + c], row[right * channels + c]);
    }
  }
}

}  // namespace hearth::data
