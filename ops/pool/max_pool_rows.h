// SPDX-License-Identifier: Apache-2.0
// Rows of max pooling on the CPU, for ops that make or take them in passing. Internal to the sources. T is any floating
// type; positions in a window are u8.
#pragma once

#include <cstdint>

#include "ops/pool/kernels.h"
#include "ops/pool/windows.h"

namespace hearth::kernels::pool {

/// Row `p` of the result of an image [H, W, C] whose pixels are 0 or more, or NaN, of either sign: y [Q, C] and, unless
/// null, the taps. Channels are in multiples of 32.
template <class T>
void max_positive_row(const PoolShape& shape, std::int64_t p, const T* image, T* y, std::uint8_t* taps);
/// Some rows of the gradient of an image, dx [rows, W, C], of the taps and the gradient of the image's result;
/// `columns` [W] are the columns of windows over each pixel. Two rows from an even one on share what they read.
template <class T>
void max_grad_rows(const PoolShape& shape, const Range& rows, const Range* columns, const std::uint8_t* taps,
                   const T* dy, T* dx);
/// The columns of windows over each pixel of a row, [W].
inline void fill_columns(const PoolShape& s, Range* columns) {
  for (std::int64_t x = 0; x < s.w; ++x) columns[x] = windows_over(x, s.stride_w, s.pad_w, s.kernel_w, s.q);
}

/// f<Tap>(), for the type in which positions are kept.
template <class F>
void visit_taps(const Tensor& taps, F&& f) {
  visit_dtype("max_pool2d", taps.dtype(), Types<std::uint8_t, std::int32_t>{}, std::forward<F>(f));
}

}  // namespace hearth::kernels::pool
