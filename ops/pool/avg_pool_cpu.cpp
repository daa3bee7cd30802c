// SPDX-License-Identifier: Apache-2.0
// Average pooling on the CPU, vectorised over channels. Gradients are gathered: each pixel of dx looks up the windows
// that hold it and is written once, so pieces of work never meet and sums are f32 (f64 for f64) throughout.
// Reference, for each image, channel and window:
//   y = sum(x) / count;  dx += dy / count for each pixel of the window
#include <algorithm>
#include <cstdint>

#include "core/cpu/element.h"
#include "ops/pool/kernels.h"
#include "ops/pool/windows.h"

#ifndef HEARTH_ISA_NAMESPACE
namespace hearth::kernels {
namespace {

using namespace pool;

inline std::int64_t window_size(const PoolShape& s, const Range& r, const Range& t) {
  return s.count_include_pad ? s.kernel_h * s.kernel_w : (r.last - r.first) * (t.last - t.first);
}

}  // namespace
}  // namespace hearth::kernels
#endif

namespace hearth {}

#define HEARTH_ISA_SOURCE "ops/pool/avg_pool_cpu.cpp"
#include "core/cpu/foreach_isa.h"

#ifdef HEARTH_ISA_NAMESPACE
namespace hearth::kernels::HEARTH_ISA_NAMESPACE {

template <class T>
void avg_row(const PoolShape& s, std::int64_t p, const T* image, T* y) {
  using A = acc_t<T>;
  const Range r = taps_inside(p, s.stride_h, s.pad_h, s.kernel_h, s.h);
  for (std::int64_t q = 0; q < s.q; ++q) {
    const Range t = taps_inside(q, s.stride_w, s.pad_w, s.kernel_w, s.w);
    const A scale = A(1) / static_cast<A>(window_size(s, r, t));
    for (std::int64_t c0 = 0; c0 < s.c; c0 += channel_block) {
      const std::int64_t width = std::min(channel_block, s.c - c0);
      alignas(64) A sum[channel_block];
      for (std::int64_t c = 0; c < width; ++c) sum[c] = A(0);
      for (std::int64_t i = r.first; i < r.last; ++i) {
        // One filter row at a time, so that windows of many pixels are sums of short sums.
        alignas(64) A line[channel_block];
        for (std::int64_t c = 0; c < width; ++c) line[c] = A(0);
        for (std::int64_t j = t.first; j < t.last; ++j) {
          const T* pixel = image + ((p * s.stride_h - s.pad_h + i) * s.w + q * s.stride_w - s.pad_w + j) * s.c + c0;
#pragma omp simd
          for (std::int64_t c = 0; c < width; ++c) line[c] += cpu::load(pixel + c);
        }
#pragma omp simd
        for (std::int64_t c = 0; c < width; ++c) sum[c] += line[c];
      }
      T* result = y + q * s.c + c0;
#pragma omp simd
      for (std::int64_t c = 0; c < width; ++c) cpu::store(result + c, sum[c] * scale);
    }
  }
}

template <class T>
void avg_grad_row(const PoolShape& s, std::int64_t row, const T* dy, T* dx) {
  using A = acc_t<T>;
  const Range ps = windows_over(row, s.stride_h, s.pad_h, s.kernel_h, s.p);
  for (std::int64_t x = 0; x < s.w; ++x) {
    const Range qs = windows_over(x, s.stride_w, s.pad_w, s.kernel_w, s.q);
    for (std::int64_t c0 = 0; c0 < s.c; c0 += channel_block) {
      const std::int64_t width = std::min(channel_block, s.c - c0);
      alignas(64) A sum[channel_block];
      for (std::int64_t c = 0; c < width; ++c) sum[c] = A(0);
      for (std::int64_t p = ps.first; p < ps.last; ++p) {
        const Range r = taps_inside(p, s.stride_h, s.pad_h, s.kernel_h, s.h);
        for (std::int64_t q = qs.first; q < qs.last; ++q) {
          const Range t = taps_inside(q, s.stride_w, s.pad_w, s.kernel_w, s.w);
          const A scale = A(1) / static_cast<A>(window_size(s, r, t));
          const T* gradient = dy + (p * s.q + q) * s.c + c0;
#pragma omp simd
          for (std::int64_t c = 0; c < width; ++c) sum[c] += cpu::load(gradient + c) * scale;
        }
      }
      T* result = dx + x * s.c + c0;
#pragma omp simd
      for (std::int64_t c = 0; c < width; ++c) cpu::store(result + c, sum[c]);
    }
  }
}

/// y [C] = mean of the rows of x [pixels, C] for the channels [c0, c1).
template <class T>
void mean_channels(std::int64_t pixels, std::int64_t channels, std::int64_t c0, std::int64_t c1, const T* x, T* y) {
  using A = acc_t<T>;
  constexpr std::int64_t run = 64;  // sums of short sums
  const std::int64_t width = c1 - c0;
  alignas(64) A sum[channel_block];
  for (std::int64_t c = 0; c < width; ++c) sum[c] = A(0);
  for (std::int64_t first = 0; first < pixels; first += run) {
    alignas(64) A part[channel_block];
    for (std::int64_t c = 0; c < width; ++c) part[c] = A(0);
    const std::int64_t last = std::min(pixels, first + run);
    for (std::int64_t i = first; i < last; ++i) {
      const T* pixel = x + i * channels + c0;
#pragma omp simd
      for (std::int64_t c = 0; c < width; ++c) part[c] += cpu::load(pixel + c);
    }
#pragma omp simd
    for (std::int64_t c = 0; c < width; ++c) sum[c] += part[c];
  }
  const A count = static_cast<A>(pixels);
#pragma omp simd
  for (std::int64_t c = 0; c < width; ++c) cpu::store(y + c0 + c, sum[c] / count);
}

/// The first row of dx [pixels, C]; the others are its copies.
template <class T>
void mean_grad_row(std::int64_t pixels, std::int64_t channels, const T* dy, T* dx) {
  using A = acc_t<T>;
  const A count = static_cast<A>(pixels);
#pragma omp simd
  for (std::int64_t c = 0; c < channels; ++c) cpu::store(dx + c, cpu::load(dy + c) / count);
}

}  // namespace hearth::kernels::HEARTH_ISA_NAMESPACE
#else

namespace hearth::kernels {

void avg_pool2d(cpu::Stream&, const PoolShape& s, const Tensor& x, const Tensor& y) {
  if (y.size() == 0) return;
  visit_dtype("avg_pool2d", x.dtype(), Floats{}, [&]<class T>() {
    const T* from = x.data<T>();
    T* into = y.data<T>();
    each_row(s.n, s.p, s.q * s.c, [&](std::int64_t n, std::int64_t p) {
      HEARTH_ISA_CALL_FOR(T, avg_row, s, p, from + n * s.h * s.w * s.c, into + (n * s.p + p) * s.q * s.c);
    });
  });
}

void avg_pool2d_grad(cpu::Stream&, const PoolShape& s, const Tensor& dy, const Tensor& dx) {
  if (dx.size() == 0) return;
  visit_dtype("avg_pool2d", dy.dtype(), Floats{}, [&]<class T>() {
    const T* gradient = dy.data<T>();
    T* into = dx.data<T>();
    each_row(s.n, s.h, s.w * s.c, [&](std::int64_t n, std::int64_t row) {
      HEARTH_ISA_CALL_FOR(T, avg_grad_row, s, row, gradient + n * s.p * s.q * s.c, into + (n * s.h + row) * s.w * s.c);
    });
  });
}

void mean_pixels(cpu::Stream&, std::int64_t pixels, const Tensor& x, const Tensor& y) {
  if (y.size() == 0) return;
  const std::int64_t channels = y.dim(1), blocks = (channels + channel_block - 1) / channel_block;
  visit_dtype("global_avg_pool", x.dtype(), Floats{}, [&]<class T>() {
    const T* from = x.data<T>();
    T* into = y.data<T>();
    cpu::parallel_for(
        y.dim(0) * blocks, rows_a_piece(pixels * channel_block), [&](std::int64_t begin, std::int64_t end) {
          for (std::int64_t i = begin; i < end; ++i) {
            const std::int64_t n = i / blocks, c0 = i % blocks * channel_block;
            HEARTH_ISA_CALL_FOR(T, mean_channels, pixels, channels, c0, std::min(channels, c0 + channel_block),
                                from + n * pixels * channels, into + n * channels);
          }
        });
  });
}

void mean_pixels_grad(cpu::Stream&, std::int64_t pixels, const Tensor& dy, const Tensor& dx) {
  if (dx.size() == 0) return;
  const std::int64_t channels = dy.dim(1);
  visit_dtype("global_avg_pool", dy.dtype(), Floats{}, [&]<class T>() {
    const T* gradient = dy.data<T>();
    T* into = dx.data<T>();
    cpu::parallel_for(dy.dim(0), rows_a_piece(pixels * channels), [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t n = begin; n < end; ++n) {
        T* image = into + n * pixels * channels;
        HEARTH_ISA_CALL_FOR(T, mean_grad_row, pixels, channels, gradient + n * channels, image);
        for (std::int64_t i = 1; i < pixels; ++i) std::copy_n(image, channels, image + i * channels);
      }
    });
  });
}

}  // namespace hearth::kernels
#endif
