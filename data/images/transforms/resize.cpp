// SPDX-License-Identifier: Apache-2.0
// The resize is separable: the columns of each row that is needed are weighed, then for each row of the result its rows
// of that.
#include "data/images/transforms/resize.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <utility>

#include "core/error.h"
#include "data/images/transforms/resize_kernels.h"

namespace hearth::data {
namespace {

/// For every output of an axis, the first input it uses and its weights, of 1 << bits in sum.
struct Weights {
  std::vector<int> first;
  std::vector<int> count;
  std::vector<std::int16_t> values;  // [outputs][slots], 0 behind the count
  int slots = 2;
  int pairs = 1;  // of slots that some output needs
  int bits = 14;
  std::vector<double> exact;  // of one output, also what is rounded to 0
  int begin = 0, end = 0;     // of the inputs that are used

  const std::int16_t* of(int output) const { return values.data() + static_cast<std::ptrdiff_t>(output) * slots; }
};

/// One axis of a resize.
struct Axis {
  double begin;           // of the box, in inputs
  double extent;          // of the box
  int size;               // of the result
  int first;              // output of the window
  int count;              // of outputs
  bool mirrored = false;  // whether the last output comes first
};

double weight_of(ResizeFilter filter, double distance) {
  const double x = std::abs(distance);
  if (filter == ResizeFilter::bilinear) return std::max(1.0 - x, 0.0);
  constexpr double a = -0.5;
  if (x < 1) return ((a + 2) * x - (a + 3)) * x * x + 1;
  return x < 2 ? (((x - 5) * x + 8) * x - 4) * a : 0;
}

/// Weights of inputs, counted from a whole one on, the origin: so a part of an image has the weights of the whole.
class Filter {
 public:
  Filter(const Axis& axis, ResizeFilter filter)
      : filter_(filter),
        scale_(axis.extent / axis.size),
        wide_(std::max(scale_, 1.0)),
        reach_(wide_ * (filter == ResizeFilter::area      ? 0.5
                        : filter == ResizeFilter::bicubic ? 2.0
                                                          : 1.0)),
        origin_(static_cast<int>(std::floor(axis.begin))),
        begin_(axis.begin - origin_),
        end_(static_cast<int>(std::ceil(begin_ + axis.extent))) {}

  int origin() const { return origin_; }
  /// An even number, as weights go by pairs.
  int most() const { return 2 * static_cast<int>(std::ceil(reach_)) + 2; }
  /// Fills `exact`, of most() values, with the weights of the `count` inputs from the returned one on; `total` is their
  /// sum.
  int weigh(int output, double* exact, int& count, double& total) const {
    const double center = begin_ + (output + 0.5) * scale_;
    const double low = center - reach_, high = center + reach_;
    const bool is_area = filter_ == ResizeFilter::area;
    // Else the inputs whose centres are within reach.
    const int first = std::max(is_area ? static_cast<int>(std::floor(low)) : static_cast<int>(low + 0.5), 0);
    const int last = std::min(is_area ? static_cast<int>(std::ceil(high)) : static_cast<int>(high + 0.5), end_);
    const double narrow = 1.0 / wide_;
    count = last - first;
    total = 0;
    for (int k = first; k < last; ++k) {
      const double weight = is_area ? std::max(std::min(k + 1.0, high) - std::max<double>(k, low), 0.0)
                                    : weight_of(filter_, (k - center + 0.5) * narrow);
      *exact++ = weight;
      total += weight;
    }
    return first;
  }

 private:
  ResizeFilter filter_;
  double scale_, wide_, reach_;
  int origin_;
  double begin_;
  int end_;
};

/// As many bits as fit into 16-bit weights, up to `max_bits`: none is above 1.2 / scale.
int bits_for(const Axis& axis, int max_bits) {
  int bits = 14;
  for (double scale = axis.extent / axis.size; scale >= 2 && bits < max_bits; scale /= 2) ++bits;
  return bits;
}

void find_weights(const Axis& axis, ResizeFilter filter, int max_bits, Weights& weights) {
  const Filter made(axis, filter);
  weights.bits = bits_for(axis, max_bits);
  weights.slots = made.most();
  weights.exact.resize(static_cast<std::size_t>(made.most()));
  const auto outputs = static_cast<std::size_t>(axis.count), slots = weights.exact.size();
  weights.first.resize(outputs);
  weights.count.resize(outputs);
  weights.values.assign(outputs * slots, 0);
  weights.begin = std::numeric_limits<int>::max();
  weights.end = std::numeric_limits<int>::min();
  int longest = 0;
  for (std::size_t i = 0; i < outputs; ++i) {
    double total = 0, sum = 0;
    const int output = static_cast<int>(axis.mirrored ? outputs - 1 - i : i);
    int reached = 0;
    int first = made.weigh(axis.first + output, weights.exact.data(), reached, total);
    const double unit = (1 << weights.bits) / total;
    int before = 0, count = 0;
    std::int16_t* const row = weights.values.data() + i * slots;
    // The sums are rounded, not each weight: so the weights of each output have the same sum.
    for (int k = 0; k < reached; ++k) {
      sum += weights.exact[static_cast<std::size_t>(k)];
      const int now = static_cast<int>(std::floor(sum * unit + 0.5));
      if (count > 0 || now != before)
        row[count++] = static_cast<std::int16_t>(now - before);
      else
        ++first;
      before = now;
    }
    while (row[count - 1] == 0) --count;
    weights.first[i] = made.origin() + first;
    weights.count[i] = count;
    weights.begin = std::min(weights.begin, weights.first[i]);
    weights.end = std::max(weights.end, weights.first[i] + count);
    longest = std::max(longest, count);
  }
  weights.pairs = (longest + 1) / 2;
}

/// A cache line.
template <class T>
struct alignas(64) AlignedLine {
  T values[64 / sizeof(T)];
};

/// Memory of one thread, used again for each image.
struct Scratch {
  Weights rows, columns;
  std::vector<AlignedLine<std::int32_t>> spread;   // weights of columns, as the kernel takes them
  std::vector<AlignedLine<std::int16_t>> between;  // rows between the passes, in turn
  std::vector<const std::int16_t*> of_output;      // those of a row of the result
  std::vector<std::uint8_t> last[2];               // rows of the source, with what may be read behind them
};

/// For a large image lies in a further cache, and the processor does not foresee where it goes on in the next page.
void prefetch_rows(const Image& image, int y, int count) {
  if (y + count > image.height) return;
  const std::uint8_t* const rows = image.row(y);
  const std::size_t bytes = static_cast<std::size_t>(count) * image.row_bytes();
  for (std::size_t at = 0; at < bytes; at += 64) __builtin_prefetch(rows + at);
}

void require_source(const Image& source, const Weights& rows, const Weights& columns) {
  HEARTH_CHECK(ShapeError,
               rows.begin >= 0 && columns.begin >= 0 && rows.end <= source.height && columns.end <= source.width,
               "resize: needs rows ", rows.begin, " to ", rows.end, " and columns ", columns.begin, " to ", columns.end,
               " of an image of ", source.height, " x ", source.width);
}

/// The weights of columns, those of four outputs together.
kernels::ColumnTaps column_taps(Weights& columns, int channels, std::vector<AlignedLine<std::int32_t>>& spread) {
  const int width = static_cast<int>(columns.first.size()), pairs = columns.pairs, groups = (width + 3) / 4;
  for (int& first : columns.first) first = (first - columns.begin) * channels;
  columns.first.resize(static_cast<std::size_t>(4 * groups));
  spread.assign(static_cast<std::size_t>(groups * pairs), {});
  for (int x = 0; x < width; ++x) {
    const std::int16_t* const from = columns.of(x);
    for (int k = 0; k < pairs; ++k) {
      std::int32_t* const to = spread.data()->values + kernels::spread_at(x, k, pairs, channels);
      to[0] = static_cast<std::uint16_t>(from[2 * k]) | from[2 * k + 1] * 65536;
      if (channels == 3) to[1] = to[2] = to[3] = to[0];
    }
  }
  return {columns.first.data(), columns.values.data(), columns.slots, spread.data()->values, pairs, width};
}

void resize_filtered(const Image& source, const Region& region, std::uint8_t* target) {
  thread_local Scratch of_thread;
  Scratch& scratch = of_thread;
  Weights& rows = scratch.rows;
  Weights& columns = scratch.columns;
  const Sizing& sizing = region.sizing;
  const Box& window = sizing.window;
  find_weights({region.area.top, region.area.height, sizing.height, window.top, window.height}, sizing.filter, 15,
               rows);
  find_weights({region.area.left, region.area.width, sizing.width, window.left, window.width, sizing.mirrored},
               sizing.filter, 20, columns);
  require_source(source, rows, columns);

  const kernels::ColumnTaps taps = column_taps(columns, source.channels, scratch.spread);
  const auto channels = static_cast<std::size_t>(source.channels);
  const std::size_t used = static_cast<std::size_t>(columns.end - columns.begin) * channels;
  const std::size_t read = used + kernels::bytes_behind(columns.pairs);
  constexpr std::size_t line = std::size(AlignedLine<std::int16_t>{}.values);
  const std::size_t row_bytes = static_cast<std::size_t>(window.width) * channels;
  const std::size_t lines = (row_bytes + kernels::resize_slack + line - 1) / line;
  // What is left of the rows that one output's filter reaches need not begin where the one's before does, or behind.
  // One row more, because they come by two.
  const std::size_t most = std::bit_ceil(rows.exact.size() + 1);
  scratch.between.resize(lines * most);
  scratch.of_output.resize(most);
  const auto between = [&](int y) {
    return scratch.between[lines * (static_cast<std::size_t>(y) & (most - 1))].values;
  };
  const auto readable = [&](int y, std::vector<std::uint8_t>& copy) {
    const std::uint8_t* const from = source.row(y) + static_cast<std::size_t>(columns.begin) * channels;
    if (static_cast<std::size_t>(source.pixels.data() + source.pixels.size() - from) >= read) return from;
    copy.assign(from, from + used);
    copy.resize(read);
    return static_cast<const std::uint8_t*>(copy.data());
  };
  const auto weigh_columns = [&](int y, int then) {
    prefetch_rows(source, y + 4, 2);
    kernels::weigh_columns(
        {{readable(y, scratch.last[0]), readable(then, scratch.last[1])}, {between(y), between(then)}}, taps,
        columns.bits - kernels::resize_point, source.channels);
  };
  int next = rows.begin;
  for (int y = 0; y < window.height; ++y, target += row_bytes) {
    const auto at = static_cast<std::size_t>(y);
    const int first = rows.first[at], count = rows.count[at];
    for (; next < first + count; next += 2) weigh_columns(next, std::min(next + 1, rows.end - 1));
    for (int k = 0; k < count; ++k) scratch.of_output[static_cast<std::size_t>(k)] = between(first + k);
    kernels::weigh_rows({scratch.of_output.data(), rows.of(y), count, rows.bits}, row_bytes, target);
  }
}

}  // namespace

bool keeps_pixels(const Region& region) {
  const Area& area = region.area;
  return area.height == region.sizing.height && area.width == region.sizing.width && area.top == std::floor(area.top) &&
         area.left == std::floor(area.left);
}

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
  const Box& window = region.sizing.window;
  target.reshape(window.height, window.width, source.channels);
  if (!keeps_pixels(region)) return resize_filtered(source, region, target.pixels.data());
  const int top = static_cast<int>(region.area.top) + window.top;
  const int left = static_cast<int>(region.area.left) + window.left;
  HEARTH_CHECK(ShapeError,
               top >= 0 && left >= 0 && window.height <= source.height - top && window.width <= source.width - left,
               "resize: needs ", window.height, " x ", window.width, " pixels at (", top, ", ", left,
               ") of an image of ", source.height, " x ", source.width);
  crop(source, {top, left, window.height, window.width}, 0, target);
  if (region.sizing.mirrored) flip_horizontally(target);
}

bool resize_into(const Image& source, const Region& region, std::uint8_t* target) {
  if (keeps_pixels(region)) return false;
  resize_filtered(source, region, target);
  return true;
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
