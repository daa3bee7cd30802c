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

/// One axis of a resize.
struct Axis {
  double begin;   // of the box, in inputs
  double extent;  // of the box
  int size;       // of the result
  int first;      // output of the window
  int count;      // of outputs
};

double weight_of(ResizeFilter filter, double distance) {
  const double x = std::abs(distance);
  if (filter == ResizeFilter::bilinear) return std::max(1.0 - x, 0.0);
  constexpr double a = -0.5;
  if (x < 1) return ((a + 2) * x - (a + 3)) * x * x + 1;
  return x < 2 ? (((x - 5) * x + 8) * x - 4) * a : 0;
}

Weights weights_of(const Axis& axis, ResizeFilter filter) {
  const double scale = axis.extent / axis.size;
  const double wide = std::max(scale, 1.0);
  const bool is_area = filter == ResizeFilter::area;
  const double reach = wide * (is_area ? 0.5 : filter == ResizeFilter::bicubic ? 2.0 : 1.0);
  Weights weights;
  weights.most = 2 * static_cast<int>(std::ceil(reach)) + 1;
  weights.first.resize(static_cast<std::size_t>(axis.count));
  weights.count.resize(static_cast<std::size_t>(axis.count));
  weights.values.assign(static_cast<std::size_t>(axis.count) * static_cast<std::size_t>(weights.most), 0);
  std::vector<double> exact(static_cast<std::size_t>(weights.most));
  // Counted from a whole input on, so that a part of an image has the weights of the whole.
  const int origin = static_cast<int>(std::floor(axis.begin));
  const double begin = axis.begin - origin;
  const int end = static_cast<int>(std::ceil(begin + axis.extent));
  for (int i = 0; i < axis.count; ++i) {
    const double center = begin + (axis.first + i + 0.5) * scale;
    // Of the filters that have a value at a point, the inputs whose centres are within reach.
    const double low = center - reach, high = center + reach;
    const int first = std::max(is_area ? static_cast<int>(std::floor(low)) : static_cast<int>(low + 0.5), 0);
    const int last = std::min(is_area ? static_cast<int>(std::ceil(high)) : static_cast<int>(high + 0.5), end);
    const int count = last - first;
    double total = 0;
    for (int k = 0; k < count; ++k) {
      const double weight = is_area ? std::max(std::min(first + k + 1.0, high) - std::max<double>(first + k, low), 0.0)
                                    : weight_of(filter, (k + first - center + 0.5) * (1.0 / wide));
      exact[static_cast<std::size_t>(k)] = weight;
      total += weight;
    }
    std::int32_t* row = weights.values.data() + static_cast<std::ptrdiff_t>(i) * weights.most;
    for (int k = 0; k < count; ++k) {
      const double scaled = exact[static_cast<std::size_t>(k)] * (1.0 / total) * (1 << weight_bits);
      row[k] = static_cast<std::int32_t>(scaled < 0 ? scaled - 0.5 : scaled + 0.5);
    }
    weights.first[static_cast<std::size_t>(i)] = origin + first;
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

namespace {

/// The inputs that the outputs use, from the least to the greatest.
Span used(const Weights& weights) {
  Span span{weights.first.front(), weights.first.front() + weights.count.front()};
  for (std::size_t i = 1; i < weights.first.size(); ++i) {
    span.begin = std::min(span.begin, weights.first[i]);
    span.end = std::max(span.end, weights.first[i] + weights.count[i]);
  }
  return span;
}

}  // namespace

void resize(const Image& source, Box box, int height, int width, Image& target) {
  HEARTH_CHECK(ShapeError,
               box.top >= 0 && box.left >= 0 && box.height > 0 && box.width > 0 &&
                   box.height <= source.height - box.top && box.width <= source.width - box.left,
               "resize: the box of ", box.height, " x ", box.width, " at (", box.top, ", ", box.left,
               ") is empty or leaves the image of ", source.height, " x ", source.width);
  HEARTH_CHECK(ShapeError, height > 0 && width > 0, "resize: to ", height, " x ", width, " pixels");
  Region region;
  region.sizing = {box, height, width, {0, 0, height, width}};
  region.area = {1.0 * box.top, 1.0 * box.left, 1.0 * box.height, 1.0 * box.width};
  resize(source, region, target);
}

void resize(const Image& source, const Region& region, Image& target) {
  HEARTH_CHECK(UsageError, &source != &target, "resize: source and target are the same image");
  const Sizing& sizing = region.sizing;
  const Box& window = sizing.window;
  const Area& area = region.area;
  target.reshape(window.height, window.width, source.channels);
  const Weights horizontal =
      weights_of({area.left, area.width, sizing.width, window.left, window.width}, sizing.filter);
  Weights vertical = weights_of({area.top, area.height, sizing.height, window.top, window.height}, sizing.filter);
  const Span rows = used(vertical), columns = used(horizontal);
  HEARTH_CHECK(ShapeError,
               rows.begin >= 0 && columns.begin >= 0 && rows.end <= source.height && columns.end <= source.width,
               "resize: needs rows ", rows.begin, " to ", rows.end, " and columns ", columns.begin, " to ", columns.end,
               " of an image of ", source.height, " x ", source.width);
  const int channels = source.channels;
  const std::size_t row_bytes = target.row_bytes();
  std::vector<std::uint8_t> narrowed(static_cast<std::size_t>(rows.end - rows.begin) * row_bytes);
  for (int y = rows.begin; y < rows.end; ++y) {
    const std::uint8_t* row = source.row(y);
    std::uint8_t* out = narrowed.data() + static_cast<std::size_t>(y - rows.begin) * row_bytes;
    if (channels == 3)
      resize_columns<3>(row, horizontal, window.width, out);
    else if (channels == 1)
      resize_columns<1>(row, horizontal, window.width, out);
    else
      resize_columns_any(row, horizontal, window.width, channels, out);
  }
  for (int& first : vertical.first) first -= rows.begin;
  resize_rows(narrowed.data(), row_bytes, vertical, target);
}

std::pair<int, int> with_shorter_side(int height, int width, int side) {
  const std::int64_t shorter = std::min(height, width), longer = std::max(height, width);
  HEARTH_CHECK(ShapeError, shorter > 0 && longer * side / shorter <= max_image_pixels, "resize: the part of ", height,
               " x ", width, " to a shorter side of ", side, " pixels is empty or too large; of ", max_image_pixels,
               " pixels at most");
  const auto scaled = [&](int extent) { return static_cast<int>(extent * std::int64_t{side} / shorter); };
  return {scaled(height), scaled(width)};
}

void resize_shorter_side(const Image& source, Box box, int side, Image& target) {
  const auto [height, width] = with_shorter_side(box.height, box.width, side);
  resize(source, box, height, width, target);
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
