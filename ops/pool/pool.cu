// SPDX-License-Identifier: Apache-2.0
// Pooling on the device: one thread a result of as many channels as 16 bytes hold (of one channel where they do not
// divide), channels fastest, so that the threads of a warp read neighbouring memory. Gradients are gathered: each pixel
// of dx looks up the windows that hold it and is written once. Sums are f32 (f64 for f64) in the order of the CPU's.
// Reference: max_pool_cpu.cpp, avg_pool_cpu.cpp.
#include <algorithm>

#include "core/cuda/elementwise.h"
#include "core/dtype.h"
#include "ops/pool/kernels.h"
#include "ops/pool/windows.cuh"

namespace hearth::kernels {
namespace {

using namespace pool_windows;
using cuda::cast_down;
using cuda::upcast;

/// Blocks that keep the device busy; each goes on with the grid's stride.
constexpr std::int64_t max_blocks = 1 << 16;

/// f(i) for this thread's share of `count` results.
template <class I, class F>
__device__ __forceinline__ void each_result(I count, F&& f) {
  for (std::int64_t at = cuda::global_thread(); at < count; at += cuda::global_threads()) f(static_cast<I>(at));
}

/// Reads each pixel once for every window over it, mostly from the cache; writes y and, unless null, its tap.
template <int width, class T, class Tap>
__global__ void max_windows(PoolShape shape, const T* x, T* y, Tap* taps) {
  using I = Index<width>;
  const Sizes<I> s(shape, width);
  each_result(s.n * s.p * s.q * s.groups, [&](I at) {
    const Place<I> o(at, s.p, s.q, s.groups);
    const Range<I> rows = taps_inside(o.row, s.stride_h, s.pad_h, s.kernel_h, s.h);
    const Range<I> columns = taps_inside(o.column, s.stride_w, s.pad_w, s.kernel_w, s.w);
    const I top = o.row * s.stride_h - s.pad_h, left = o.column * s.stride_w - s.pad_w;
    const T* const image = x + o.n * s.h * s.w * s.c + o.channel * width;
    acc_t<T> best[width] = {};
    I tap[width];
    bool first = true;
    for (I r = rows.first; r < rows.last; ++r)
      for (I t = columns.first; t < columns.last; ++t) {
        const auto pixel = cuda::load_pack<width>(image + ((top + r) * s.w + left + t) * s.c);
        HEARTH_UNROLL
        for (int i = 0; i < width; ++i) {
          const acc_t<T> value = upcast(pixel.at[i]);
          // The first that is not a number stays.
          if (!first && ((!(value > best[i]) && value == value) || best[i] != best[i])) continue;
          best[i] = value;
          tap[i] = r * s.kernel_w + t;
        }
        first = false;
      }
    cuda::Pack<T, width> result;
    cuda::Pack<Tap, width> chosen;
    HEARTH_UNROLL
    for (int i = 0; i < width; ++i) {
      result.at[i] = cast_down<T>(best[i]);
      chosen.at[i] = static_cast<Tap>(tap[i]);
    }
    cuda::store_pack(y + at * width, result);
    if (taps != nullptr) cuda::store_pack(taps + at * width, chosen);
  });
}

/// dx = sums, in the type of dx.
template <int width, class T>
__device__ __forceinline__ void store_sums(const acc_t<T> (&sums)[width], T* to) {
  cuda::Pack<T, width> result;
  HEARTH_UNROLL
  for (int i = 0; i < width; ++i) result.at[i] = cast_down<T>(sums[i]);
  cuda::store_pack(to, result);
}

/// Reads dy and taps once for every pixel of their windows, writes dx.
template <int width, class T, class Tap>
__global__ void max_windows_grad(PoolShape shape, const Tap* taps, const T* dy, T* dx) {
  using I = Index<width>;
  const Sizes<I> s(shape, width);
  each_result(s.n * s.h * s.w * s.groups, [&](I at) {
    const Place<I> pixel(at, s.h, s.w, s.groups);
    acc_t<T> sum[width] = {};
    visit_windows<width>(s, pixel, [&](I p, I q, I window) {
      const I r = pixel.row + s.pad_h - p * s.stride_h, t = pixel.column + s.pad_w - q * s.stride_w;
      const Tap tap = static_cast<Tap>(r * s.kernel_w + t);
      const auto chosen = cuda::load_pack<width>(taps + window);
      const auto gradient = cuda::load_pack<width>(dy + window);
      HEARTH_UNROLL
      for (int i = 0; i < width; ++i) sum[i] += chosen.at[i] == tap ? upcast(gradient.at[i]) : acc_t<T>(0);
    });
    store_sums<width>(sum, dx + at * width);
  });
}

/// What a window's sum is multiplied by.
template <class A, class I>
__device__ A scale_of(const Sizes<I>& s, const Range<I>& rows, const Range<I>& columns) {
  return A(1) / static_cast<A>(s.count_include_pad ? s.kernel_h * s.kernel_w : rows.size() * columns.size());
}

/// As max_windows. Sums of the filter's rows are summed, so that windows of many pixels are sums of short sums.
template <int width, class T>
__global__ void mean_windows(PoolShape shape, const T* x, T* y) {
  using A = acc_t<T>;
  using I = Index<width>;
  const Sizes<I> s(shape, width);
  each_result(s.n * s.p * s.q * s.groups, [&](I at) {
    const Place<I> o(at, s.p, s.q, s.groups);
    const Range<I> rows = taps_inside(o.row, s.stride_h, s.pad_h, s.kernel_h, s.h);
    const Range<I> columns = taps_inside(o.column, s.stride_w, s.pad_w, s.kernel_w, s.w);
    const I top = o.row * s.stride_h - s.pad_h, left = o.column * s.stride_w - s.pad_w;
    const T* const image = x + o.n * s.h * s.w * s.c + o.channel * width;
    A sum[width] = {};
    for (I r = rows.first; r < rows.last; ++r) {
      A line[width] = {};
      for (I t = columns.first; t < columns.last; ++t) {
        const auto pixel = cuda::load_pack<width>(image + ((top + r) * s.w + left + t) * s.c);
        HEARTH_UNROLL
        for (int i = 0; i < width; ++i) line[i] += upcast(pixel.at[i]);
      }
      HEARTH_UNROLL
      for (int i = 0; i < width; ++i) sum[i] += line[i];
    }
    const A scale = scale_of<A>(s, rows, columns);
    HEARTH_UNROLL
    for (int i = 0; i < width; ++i) sum[i] *= scale;
    store_sums<width>(sum, y + at * width);
  });
}

template <int width, class T>
__global__ void mean_windows_grad(PoolShape shape, const T* dy, T* dx) {
  using A = acc_t<T>;
  using I = Index<width>;
  const Sizes<I> s(shape, width);
  each_result(s.n * s.h * s.w * s.groups, [&](I at) {
    A sum[width] = {};
    visit_windows<width>(s, Place<I>(at, s.h, s.w, s.groups), [&](I p, I q, I window) {
      const Range<I> rows = taps_inside(p, s.stride_h, s.pad_h, s.kernel_h, s.h);
      const Range<I> columns = taps_inside(q, s.stride_w, s.pad_w, s.kernel_w, s.w);
      const A scale = scale_of<A>(s, rows, columns);
      const auto gradient = cuda::load_pack<width>(dy + window);
      HEARTH_UNROLL
      for (int i = 0; i < width; ++i) sum[i] += upcast(gradient.at[i]) * scale;
    });
    store_sums<width>(sum, dx + at * width);
  });
}

/// Channels and pixel lines of a block of mean_of_pixels.
constexpr int mean_channels = 32, mean_lines = 8;

/// y [n, channels]. A block takes 32 channels of one image, one a lane; its 8 warps take every eighth pixel and are
/// summed in order of warp. Each warp sums runs of 64 first. Reads x once.
template <class T>
__global__ void __launch_bounds__(mean_channels* mean_lines)
    mean_of_pixels(std::int64_t images, std::int64_t pixels, std::int64_t channels, const T* x, T* y) {
  using A = acc_t<T>;
  HEARTH_SHARED(A, lines, [mean_lines][mean_channels]);
  constexpr std::int64_t run = 64;
  const int lane = static_cast<int>(threadIdx.x) % mean_channels, line = static_cast<int>(threadIdx.x) / mean_channels;
  const std::int64_t pieces = (channels + mean_channels - 1) / mean_channels;
  for (std::int64_t piece = blockIdx.x; piece < images * pieces; piece += gridDim.x) {
    const std::int64_t n = piece / pieces, channel = piece % pieces * mean_channels + lane;
    A sum = 0;
    if (channel < channels) {
      const T* const from = x + n * pixels * channels + channel;
      for (std::int64_t first = line; first < pixels; first += run * mean_lines) {
        A part = 0;
        const std::int64_t last = first + run * mean_lines < pixels ? first + run * mean_lines : pixels;
        for (std::int64_t i = first; i < last; i += mean_lines) part += upcast(from[i * channels]);
        sum += part;
      }
    }
    lines[line][lane] = sum;
    __syncthreads();
    if (line == 0 && channel < channels) {
      for (int i = 1; i < mean_lines; ++i) sum += lines[i][lane];
      y[n * channels + channel] = cast_down<T>(sum / static_cast<A>(pixels));
    }
    __syncthreads();
  }
}

/// dx [n, pixels, channels]: dy [n, channels] / pixels in every pixel. Writes dx once.
template <int width, class T>
__global__ void mean_of_pixels_grad(std::int64_t size, std::int64_t image, std::int64_t channels, acc_t<T> scale,
                                    const T* dy, T* dx) {
  using I = Index<width>;
  const I groups = static_cast<I>(channels / width), image_groups = static_cast<I>(image / width);
  each_result(static_cast<I>(size / width), [&](I at) {
    const auto gradient = cuda::load_pack<width>(dy + (at / image_groups * groups + at % groups) * width);
    acc_t<T> value[width];
    HEARTH_UNROLL
    for (int i = 0; i < width; ++i) value[i] = upcast(gradient.at[i]) * scale;
    store_sums<width>(value, dx + at * width);
  });
}

template <class F>
void visit_taps(const Tensor& taps, F&& f) {
  visit_dtype("max_pool2d", taps.dtype(), Types<std::uint8_t, std::int32_t>{}, std::forward<F>(f));
}

/// f.operator()<T, channels of a thread>() for images of these tensors' type and shape.
template <class F>
void visit_packs(const char* op, const PoolShape& s, const Tensor& a, const Tensor& b, F&& f) {
  // Positions in padding and of taps are counted, too.
  bool narrow = std::max(a.size(), b.size()) < 1 << 30;
  for (const std::int64_t of_window : {s.kernel_h, s.kernel_w, s.stride_h, s.stride_w, s.pad_h, s.pad_w})
    narrow = narrow && of_window < 1 << 15;
  visit_dtype(op, a.dtype(), Floats{}, [&]<class T>() {
    if (narrow && cuda::packs_fit(a.data<T>(), s.c) && cuda::packs_fit(b.data<T>(), s.c))
      f.template operator()<T, cuda::pack_size<T>>();
    else
      f.template operator()<T, 1>();
  });
}

}  // namespace

void max_pool2d(cuda::Stream& stream, const PoolShape& s, const Tensor& x, const Tensor& y, const Tensor& taps) {
  if (y.size() == 0) return;
  visit_packs("max_pool2d", s, x, y, [&]<class T, int width>() {
    const auto run = [&]<class Tap>(Tap* kept) {
      cuda::launch(stream, "max_pool2d", cuda::shape_over(y.size() / width).moving(cuda::bytes_of(x, y, taps)),
                   max_windows<width, T, Tap>, s, x.data<T>(), y.data<T>(), kept);
    };
    if (!taps.defined()) return run(static_cast<std::uint8_t*>(nullptr));
    visit_taps(taps, [&]<class Tap>() { run(taps.data<Tap>()); });
  });
}

void max_pool2d_grad(cuda::Stream& stream, const PoolShape& s, const Tensor& taps, const Tensor& dy, const Tensor& dx) {
  if (dx.size() == 0) return;
  visit_packs("max_pool2d", s, dy, dx, [&]<class T, int width>() {
    visit_taps(taps, [&]<class Tap>() {
      cuda::launch(stream, "max_pool2d_grad", cuda::shape_over(dx.size() / width).moving(cuda::bytes_of(taps, dy, dx)),
                   max_windows_grad<width, T, Tap>, s, taps.data<Tap>(), dy.data<T>(), dx.data<T>());
    });
  });
}

void avg_pool2d(cuda::Stream& stream, const PoolShape& s, const Tensor& x, const Tensor& y) {
  if (y.size() == 0) return;
  visit_packs("avg_pool2d", s, x, y, [&]<class T, int width>() {
    cuda::launch(stream, "avg_pool2d", cuda::shape_over(y.size() / width).moving(cuda::bytes_of(x, y)),
                 mean_windows<width, T>, s, x.data<T>(), y.data<T>());
  });
}

void avg_pool2d_grad(cuda::Stream& stream, const PoolShape& s, const Tensor& dy, const Tensor& dx) {
  if (dx.size() == 0) return;
  visit_packs("avg_pool2d", s, dy, dx, [&]<class T, int width>() {
    cuda::launch(stream, "avg_pool2d_grad", cuda::shape_over(dx.size() / width).moving(cuda::bytes_of(dy, dx)),
                 mean_windows_grad<width, T>, s, dy.data<T>(), dx.data<T>());
  });
}

void mean_pixels(cuda::Stream& stream, std::int64_t pixels, const Tensor& x, const Tensor& y) {
  if (y.size() == 0) return;
  const std::int64_t images = y.dim(0), channels = y.dim(1);
  const std::int64_t pieces = images * ((channels + mean_channels - 1) / mean_channels);
  visit_dtype("global_avg_pool", x.dtype(), Floats{}, [&]<class T>() {
    cuda::launch(stream, "global_avg_pool",
                 {cuda::blocks_for(pieces, 1, max_blocks), mean_channels * mean_lines, 0, cuda::bytes_of(x, y)},
                 mean_of_pixels<T>, images, pixels, channels, x.data<T>(), y.data<T>());
  });
}

void mean_pixels_grad(cuda::Stream& stream, std::int64_t pixels, const Tensor& dy, const Tensor& dx) {
  if (dx.size() == 0) return;
  visit_packs("global_avg_pool", {.c = dy.dim(1)}, dy, dx, [&]<class T, int width>() {
    cuda::launch(stream, "global_avg_pool_grad", cuda::shape_over(dx.size() / width).moving(cuda::bytes_of(dy, dx)),
                 mean_of_pixels_grad<width, T>, dx.size(), pixels * dy.dim(1), dy.dim(1),
                 acc_t<T>(1) / static_cast<acc_t<T>>(pixels), dy.data<T>(), dx.data<T>());
  });
}

}  // namespace hearth::kernels
