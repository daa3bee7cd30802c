// SPDX-License-Identifier: Apache-2.0
// A thread owns eight channels. Forward it makes one window, whose pixels come mostly from the caches. The gradient is
// gathered: a thread walks along lines of pixels, and finds what the windows over each give back. So x is read once
// forward and twice for the gradient, which is written once; dy and taps have a quarter of its pixels.
// batch_norm_pool_stem.cuh is for the windows of a residual network's stem.
// Reference: batch_norm_cpu.cpp and max_pool_cpu.cpp.
#include "ops/norm/batch_norm_pool.h"

#include "core/cuda/elementwise.h"
#include "ops/norm/cuda/batch_norm_pool_stem.cuh"
#include "ops/norm/cuda/batch_norm_rows.cuh"
#include "ops/pool/windows.cuh"

namespace hearth::kernels {
namespace {

using namespace cuda;
using namespace batch_norm_rows;
using namespace batch_norm_stem;
using namespace pool_windows;

constexpr std::int64_t pass_lines = 4;

// A thread a window and eight channels.
template <class T>
__global__ void batch_norm_pool_apply(PoolShape shape, const T* x, const acc_t<T>* table, T* y, std::uint8_t* taps) {
  using P = acc_t<T>;
  const Windows s(shape, unit);
  const std::int64_t count = static_cast<std::int64_t>(s.n) * s.p * s.q * s.groups;
  for (std::int64_t at = global_thread(); at < count; at += global_threads()) {
    const Place<int> o(static_cast<int>(at), s.p, s.q, s.groups);
    const ChannelsNorm<T> norm(table, s.c, o.channel * unit);
    const Range<int> rows = taps_inside(o.row, s.stride_h, s.pad_h, s.kernel_h, s.h);
    const Range<int> columns = taps_inside(o.column, s.stride_w, s.pad_w, s.kernel_w, s.w);
    const int top = o.row * s.stride_h - s.pad_h, left = o.column * s.stride_w - s.pad_w;
    const T* const image = x + o.n * s.h * s.w * s.c + o.channel * unit;
    P best[unit] = {};
    unsigned tap[unit];
    HEARTH_UNROLL
    for (int k = 0; k < unit; ++k) tap[k] = shut_tap;
    for (int r = rows.first; r < rows.last; ++r)
      for (int t = columns.first; t < columns.last; ++t) {
        const Eight<T> pixel = load_eight<true>(image + ((top + r) * s.w + left + t) * s.c, unit);
        HEARTH_UNROLL
        for (int k = 0; k < unit; ++k) {
          const P value = upcast(cast_down<T>(norm.normal(k, upcast(pixel.at[k]))));
          // NaN wins, and gets no gradient.
          if (!(value > best[k]) && value == value) continue;
          best[k] = value;
          tap[k] = value > P(0) ? static_cast<unsigned>(r * s.kernel_w + t) : shut_tap;
        }
      }
    store_unit(y + at * unit, best);
    if (taps == nullptr) continue;
    Pack<std::uint8_t, unit> chosen;
    HEARTH_UNROLL
    for (int k = 0; k < unit; ++k) chosen.at[k] = static_cast<std::uint8_t>(tap[k]);
    store_pack(taps + at * unit, chosen);
  }
}

// A block's lines of pixels, and this thread's channels and columns in them.
struct LinesOfBlock {
  int channel, column, first, last;
  bool inside;

  __device__ LinesOfBlock(const ColumnTiles& cut, const TilePlace& place)
      : channel(static_cast<int>(place.unit) * unit),
        column(static_cast<int>(threadIdx.x) / cut.across),
        first(static_cast<int>(place.segment * cut.segment_rows)),
        last(static_cast<int>(cut.rows)),
        inside(place.unit < cut.units) {
    const int end = first + static_cast<int>(cut.segment_rows);
    last = end < last ? end : last;
  }
};

// use(element of the pixel's first channel, g) for the thread's pixels of these lines; g [8] is what their windows give
// back. Ends of runs: pause().
template <class T, class Use, class Pause>
__device__ __forceinline__ void each_gradient(const Windows& s, const LinesOfBlock& of, int down, const T* dy,
                                              const std::uint8_t* taps, Use&& use, Pause&& pause) {
  using P = acc_t<T>;
  int walked = 0;
  for (int line = of.first; of.inside && line < of.last; ++line) {
    const int image = line / s.h, row = line - image * s.h;
    const Range<int> ps = windows_over(row, s.stride_h, s.pad_h, s.kernel_h, s.p);
    for (int column = of.column; column < s.w; column += down) {
      const Range<int> qs = windows_over(column, s.stride_w, s.pad_w, s.kernel_w, s.q);
      P g[unit] = {};
      for (int p = ps.first; p < ps.last; ++p)
        for (int q = qs.first; q < qs.last; ++q) {
          const int tap = (row + s.pad_h - p * s.stride_h) * s.kernel_w + column + s.pad_w - q * s.stride_w;
          const int window = ((image * s.p + p) * s.q + q) * s.c + of.channel;
          const auto chosen = load_pack<unit>(taps + window);
          const Eight<T> slope = load_eight<true>(dy + window, unit);
          HEARTH_UNROLL
          for (int k = 0; k < unit; ++k) g[k] += chosen.at[k] == tap ? upcast(slope.at[k]) : P(0);
        }
      use((line * s.w + column) * s.c + of.channel, g);
      if (++walked % run_pixels == 0) pause();
    }
  }
  pause();
}

template <class T>
__global__ void __launch_bounds__(tile_block, 2)
    batch_norm_pool_grad_moments(PoolShape shape, const T* x, const acc_t<T>* table, const std::uint8_t* taps,
                                 const T* dy, ColumnTiles cut, RunSums runs, GradientSums<acc_t<T>> norm) {
  using P = acc_t<T>;
  const Windows s(shape, unit);
  const TilePlace place(cut, blockIdx.x);
  const LinesOfBlock of(cut, place);
  P mean[unit] = {};
  if (of.inside) load_unit(table + of.channel, mean);
  LongSums<P, 2> sums;
  each_gradient(
      s, of, cut.down, dy, taps,
      [&](int at, const P(&g)[unit]) {
        const Eight<T> value = load_eight<true>(x + at, unit);
        HEARTH_UNROLL
        for (int k = 0; k < unit; ++k) {
          sums.part[0][k] += g[k];
          sums.part[1][k] += g[k] * (upcast(value.at[k]) - mean[k]);
        }
      },
      [&] { sums.carry(); });
  finish_gradient(runs, norm, cut);
}

template <class T>
__global__ void __launch_bounds__(tile_block, 2)
    batch_norm_pool_grad_apply(PoolShape shape, const T* x, const acc_t<T>* table, const std::uint8_t* taps,
                               const T* dy, const acc_t<T>* corrections, T* dx, ColumnTiles cut) {
  using P = acc_t<T>;
  const Windows s(shape, unit);
  const TilePlace place(cut, blockIdx.x);
  const LinesOfBlock of(cut, place);
  if (!of.inside) return;
  P mean[unit], scale[unit], a[unit], b[unit];
  load_unit(table + of.channel, mean);
  load_unit(table + s.c + of.channel, scale);
  load_unit(corrections + of.channel, a);
  load_unit(corrections + s.c + of.channel, b);
  each_gradient(
      s, of, cut.down, dy, taps,
      [&](int at, const P(&g)[unit]) {
        const Eight<T> value = load_eight<true>(x + at, unit);
        P result[unit];
        HEARTH_UNROLL
        for (int k = 0; k < unit; ++k) result[k] = scale[k] * (g[k] - a[k] - (upcast(value.at[k]) - mean[k]) * b[k]);
        store_eight<true>(dx + at, unit, result);
      },
      [] {});
}

ColumnTiles cut_lines(const PoolShape& s, std::int64_t lines_each) {
  ColumnTiles cut = cut_columns(s.n * s.h, s.c / unit, sum_blocks, 1);
  if (lines_each > 0) {
    cut.segment_rows = lines_each;
    cut.segments = (cut.rows + lines_each - 1) / lines_each;
  }
  return cut;
}

}  // namespace

void batch_norm_pool(Stream& stream, const PoolShape& shape, const Tensor& x, const Tensor& coefficients,
                     const Tensor& y, const Tensor& taps) {
  visit_dtype("batch_norm_pool", x.dtype(), Floats{}, [&]<class T>() {
    if constexpr (sizeof(T) == 2) {
      if (is_stem(shape, x.dtype())) {
        const WindowTiles tiles = cut_windows(shape, pass_blocks, window_rows_each);
        return launch(stream, "batch_norm_pool",
                      {blocks_for(tiles.cut.blocks(), 1), tile_block, 0, bytes_of(x, coefficients, y, taps)},
                      batch_norm_pool_stem<T>, shape, x.data<T>(), coefficients.data<acc_t<T>>(), y.data<T>(),
                      data_or_null<std::uint8_t>(taps), tiles);
      }
    }
    launch(stream, "batch_norm_pool", shape_over(y.size() / unit).moving(bytes_of(x, coefficients, y, taps)),
           batch_norm_pool_apply<T>, shape, x.data<T>(), coefficients.data<acc_t<T>>(), y.data<T>(),
           data_or_null<std::uint8_t>(taps));
  });
}

void batch_norm_pool_grad_sums(Stream& stream, const PoolShape& shape, const Tensor& x, const Tensor& coefficients,
                               const Tensor& taps, const Tensor& dy, const Tensor& rstd, const Tensor& d_gamma,
                               const Tensor& d_beta, const Tensor& corrections) {
  const bool stem = is_stem(shape, x.dtype());
  const WindowTiles tiles = stem ? cut_windows(shape, sum_blocks, window_rows_each) : WindowTiles{};
  const ColumnTiles cut = stem ? tiles.cut : cut_lines(shape, 0);
  Tensor memory;
  const RunSums sums = run_sums(stream, 2, shape.c, cut.segments, cut.tiles, memory);
  const BatchNormGradient norm{x, coefficients, rstd, d_gamma, d_beta, corrections};
  visit_dtype("batch_norm_pool", x.dtype(), Floats{}, [&]<class T>() {
    using P = acc_t<T>;
    const LaunchShape launched{blocks_for(cut.blocks(), 1), tile_block, LongSums<P, 2>::shared_bytes,
                               bytes_of(x, taps, dy) + sums.bytes() + bytes_of_gradient(norm)};
    const GradientSums<P> to = gradient_sums<P>(norm, x.size() / shape.c);
    if constexpr (sizeof(T) == 2) {
      if (stem)
        return launch(stream, "batch_norm_pool_grad_moments", launched, batch_norm_pool_stem_grad_moments<T>, shape,
                      x.data<T>(), taps.data<std::uint8_t>(), dy.data<T>(), tiles, sums, to);
    }
    launch(stream, "batch_norm_pool_grad_moments", launched, batch_norm_pool_grad_moments<T>, shape, x.data<T>(),
           coefficients.data<P>(), taps.data<std::uint8_t>(), dy.data<T>(), cut, sums, to);
  });
}

void batch_norm_pool_grad(Stream& stream, const PoolShape& shape, const Tensor& x, const Tensor& coefficients,
                          const Tensor& taps, const Tensor& dy, const Tensor& corrections, const Tensor& dx) {
  const bool stem = is_stem(shape, x.dtype());
  const WindowTiles tiles = stem ? cut_windows(shape, pass_blocks, window_rows_each) : WindowTiles{};
  const ColumnTiles cut = stem ? tiles.cut : cut_lines(shape, pass_lines);
  visit_dtype("batch_norm_pool", x.dtype(), Floats{}, [&]<class T>() {
    using P = acc_t<T>;
    const auto run = [&](auto kernel, const auto& cuts) {
      launch(stream, "batch_norm_pool_grad",
             {blocks_for(cut.blocks(), 1), tile_block, 0, bytes_of(x, coefficients, taps, dy, corrections, dx)}, kernel,
             shape, x.data<T>(), coefficients.data<P>(), taps.data<std::uint8_t>(), dy.data<T>(), corrections.data<P>(),
             dx.data<T>(), cuts);
    };
    if constexpr (sizeof(T) == 2) {
      if (stem) return run(batch_norm_pool_stem_grad<T>, tiles);
    }
    run(batch_norm_pool_grad_apply<T>, cut);
  });
}

}  // namespace hearth::kernels
