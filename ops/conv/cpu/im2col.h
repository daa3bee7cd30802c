// SPDX-License-Identifier: Apache-2.0
// Pixels under the taps of a filter, gathered into matrix rows and scattered back. A row of the matrix belongs to one
// output pixel and holds the taps [first, last) of one group, channels innermost.
#pragma once

#include <algorithm>
#include <cstdint>

#include "ops/conv/kernels.h"

namespace hearth::kernels {

/// Part of the columns: taps r * S + s in [first, last) of one group.
struct TapRange {
  std::int64_t group = 0;
  std::int64_t first = 0;
  std::int64_t last = 0;
};

/// Calls f(column, pixel, count) for runs of `count` elements of the image that lie side by side in the matrix row of
/// output pixel (p, q) from `column` on; `pixel` is the element's offset in the image, or -1 for a run of padding.
template <class F>
void visit_runs(const ConvShape& s, const TapRange& taps, std::int64_t p, std::int64_t q, F&& f) {
  const std::int64_t channels = s.c / s.groups;
  const std::int64_t shift = taps.group * channels;
  const std::int64_t top = p * s.stride_h - s.pad_h, left = q * s.stride_w - s.pad_w;
  // Neighbouring taps read neighbouring memory, so a whole filter row is one run.
  const bool joined = s.groups == 1 && s.dilation_w == 1;
  for (std::int64_t tap = taps.first; tap < taps.last;) {
    const std::int64_t r = tap / s.s, column_of_tap = tap % s.s;
    const std::int64_t in_row = std::min(s.s - column_of_tap, taps.last - tap);
    const std::int64_t y = top + r * s.dilation_h;
    std::int64_t at = (tap - taps.first) * channels;
    tap += in_row;
    if (y < 0 || y >= s.h) {
      f(at, std::int64_t{-1}, in_row * channels);
      continue;
    }
    if (joined) {
      const std::int64_t x = left + column_of_tap;
      const std::int64_t begin = std::clamp<std::int64_t>(-x, 0, in_row);
      const std::int64_t end = std::clamp<std::int64_t>(s.w - x, begin, in_row);
      if (begin > 0) f(at, std::int64_t{-1}, begin * channels);
      if (end > begin) f(at + begin * channels, (y * s.w + x + begin) * channels, (end - begin) * channels);
      if (in_row > end) f(at + end * channels, std::int64_t{-1}, (in_row - end) * channels);
      continue;
    }
    for (std::int64_t i = 0; i < in_row; ++i, at += channels) {
      const std::int64_t x = left + (column_of_tap + i) * s.dilation_w;
      const bool inside = x >= 0 && x < s.w;
      f(at, inside ? (y * s.w + x) * s.c + shift : std::int64_t{-1}, channels);
    }
  }
}

/// Output pixel number `row`, counted over n, p and q.
struct OutputPixel {
  std::int64_t n, p, q;
  OutputPixel(const ConvShape& s, std::int64_t row) : n(row / (s.p * s.q)), p(row / s.q % s.p), q(row % s.q) {}
  void next(const ConvShape& s) {
    if (++q < s.q) return;
    q = 0;
    if (++p < s.p) return;
    p = 0;
    ++n;
  }
};

/// cols[rows, taps * channels] for the output pixels [row, row + rows) of images x.
template <class T>
void gather(const ConvShape& s, const TapRange& taps, std::int64_t row, std::int64_t rows, const T* x, T* cols) {
  const std::int64_t width = (taps.last - taps.first) * (s.c / s.groups);
  OutputPixel pixel(s, row);
  for (std::int64_t i = 0; i < rows; ++i, cols += width, pixel.next(s)) {
    const T* image = x + pixel.n * s.h * s.w * s.c;
    visit_runs(s, taps, pixel.p, pixel.q, [&](std::int64_t at, std::int64_t from, std::int64_t count) {
      if (from < 0)
        std::fill_n(cols + at, count, T(0));
      else
        std::copy_n(image + from, count, cols + at);
    });
  }
}

/// Adds the rows of cols to the pixels they were gathered from.
template <class T>
void scatter_add(const ConvShape& s, const TapRange& taps, std::int64_t row, std::int64_t rows, const T* cols, T* dx) {
  const std::int64_t width = (taps.last - taps.first) * (s.c / s.groups);
  OutputPixel pixel(s, row);
  for (std::int64_t i = 0; i < rows; ++i, cols += width, pixel.next(s)) {
    T* image = dx + pixel.n * s.h * s.w * s.c;
    visit_runs(s, taps, pixel.p, pixel.q, [&](std::int64_t at, std::int64_t into, std::int64_t count) {
      if (into < 0) return;
      T* sum = image + into;
      const T* term = cols + at;
#pragma omp simd
      for (std::int64_t c = 0; c < count; ++c) sum[c] += term[c];
    });
  }
}

}  // namespace hearth::kernels
