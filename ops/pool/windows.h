// SPDX-License-Identifier: Apache-2.0
// The windows of pooling on the CPU, and how rows of images are shared among threads. Internal to the sources.
#pragma once

#include <algorithm>
#include <cstdint>

#include "core/cpu/parallel.h"

namespace hearth::kernels::pool {

/// Channels handled at a time; their running values stay in the first-level cache.
inline constexpr std::int64_t channel_block = 256;

/// Positions [first, last) along one axis.
struct Range {
  std::int64_t first, last;
};

/// Taps of window `p` that lie inside the image.
inline Range taps_inside(std::int64_t p, std::int64_t stride, std::int64_t pad, std::int64_t kernel,
                         std::int64_t size) {
  const std::int64_t start = p * stride - pad;
  return {std::max<std::int64_t>(0, -start), std::min(kernel, size - start)};
}

/// Windows that hold pixel `y`.
inline Range windows_over(std::int64_t y, std::int64_t stride, std::int64_t pad, std::int64_t kernel,
                          std::int64_t count) {
  const std::int64_t at = y + pad;
  const std::int64_t first = at < kernel ? 0 : (at - kernel) / stride + 1;
  return {first, std::min(count, at / stride + 1)};
}

/// Image rows worth handing to a thread.
inline std::int64_t rows_a_piece(std::int64_t row_size) {
  return std::max<std::int64_t>(1, 16384 / std::max<std::int64_t>(1, row_size));
}

/// f(image, row) for all rows of all images.
template <class F>
void each_row(std::int64_t images, std::int64_t rows, std::int64_t row_size, F&& f) {
  cpu::parallel_for(images * rows, rows_a_piece(row_size), [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) f(i / rows, i % rows);
  });
}

}  // namespace hearth::kernels::pool
