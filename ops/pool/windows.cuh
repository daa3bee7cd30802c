// SPDX-License-Identifier: Apache-2.0
// Which pixels a window of a pooling op has, and which windows a pixel lies in. For kernel sources only.
#pragma once

#include <type_traits>

#include "core/cuda/kernel.h"
#include "ops/pool/kernels.h"

namespace hearth::kernels::pool_windows {

/// Indices have 32 bits where packs are used; the host sees to it that they suffice.
template <int width>
using Index = std::conditional_t<(width > 1), int, std::int64_t>;

/// A PoolShape in indices of type I, with channels in groups.
template <class I>
struct Sizes {
  I n, h, w, c, p, q, groups, kernel_h, kernel_w, stride_h, stride_w, pad_h, pad_w;
  bool count_include_pad;

  __device__ Sizes(const PoolShape& s, int width)
      : n(static_cast<I>(s.n)),
        h(static_cast<I>(s.h)),
        w(static_cast<I>(s.w)),
        c(static_cast<I>(s.c)),
        p(static_cast<I>(s.p)),
        q(static_cast<I>(s.q)),
        groups(c / width),
        kernel_h(static_cast<I>(s.kernel_h)),
        kernel_w(static_cast<I>(s.kernel_w)),
        stride_h(static_cast<I>(s.stride_h)),
        stride_w(static_cast<I>(s.stride_w)),
        pad_h(static_cast<I>(s.pad_h)),
        pad_w(static_cast<I>(s.pad_w)),
        count_include_pad(s.count_include_pad) {}
};

/// Positions [first, last) along one axis.
template <class I>
struct Range {
  I first, last;
  __device__ I size() const { return last - first; }
};

/// Taps of window `p` that lie inside the image.
template <class I>
__device__ Range<I> taps_inside(I p, I stride, I pad, I kernel, I size) {
  const I start = p * stride - pad;
  return {start < 0 ? -start : 0, kernel < size - start ? kernel : size - start};
}

/// Windows that hold pixel `y`.
template <class I>
__device__ Range<I> windows_over(I y, I stride, I pad, I kernel, I count) {
  const I at = y + pad;
  const I last = at / stride + 1;
  return {at < kernel ? 0 : (at - kernel) / stride + 1, last < count ? last : count};
}

/// Element `i` of an [n, rows, columns, channels] array.
template <class I>
struct Place {
  I n, row, column, channel;
  __device__ Place(I i, I rows, I columns, I channels) {
    channel = i % channels;
    i /= channels;
    column = i % columns;
    i /= columns;
    row = i % rows;
    n = i / rows;
  }
};

/// f(p, q, offset in y) for the windows over a pixel; its channel counts groups of `width`.
template <int width, class I, class F>
__device__ __forceinline__ void visit_windows(const Sizes<I>& s, const Place<I>& pixel, F&& f) {
  const Range<I> ps = windows_over(pixel.row, s.stride_h, s.pad_h, s.kernel_h, s.p);
  const Range<I> qs = windows_over(pixel.column, s.stride_w, s.pad_w, s.kernel_w, s.q);
  for (I p = ps.first; p < ps.last; ++p)
    for (I q = qs.first; q < qs.last; ++q) f(p, q, ((pixel.n * s.p + p) * s.q + q) * s.c + pixel.channel * width);
}

}  // namespace hearth::kernels::pool_windows
