// SPDX-License-Identifier: Apache-2.0
// Resampling on the CPU, vectorised over channels. The gradient is the same sum with the tables transposed: each pixel
// is written once, and pieces of work never meet.
#include <algorithm>
#include <cstring>

#include "core/cpu/element.h"
#include "core/cpu/parallel.h"
#include "ops/interpolate/kernels.h"
#include "ops/scratch.h"

namespace hearth {}

#define HEARTH_ISA_SOURCE "ops/interpolate/interpolate_cpu.cpp"
#include "core/cpu/foreach_isa.h"

#ifdef HEARTH_ISA_NAMESPACE
namespace hearth::kernels::HEARTH_ISA_NAMESPACE {

/// A row of the result [width, channels] from rows [count, read, channels] of what is read, weighed by `down`.
template <class T, class P>
void resample_row(const T* rows, const P* down, std::int64_t count, const TapTable<P>& across, std::int64_t read,
                  std::int64_t width, std::int64_t channels, T* into) {
  constexpr std::int64_t channel_block = 256;  // sums that stay in the nearest cache
  for (std::int64_t q = 0; q < width; ++q, into += channels) {
    const P* const weights = across.weights + q * across.stride;
    const T* const pixels = rows + across.first[q] * channels;
    for (std::int64_t c0 = 0; c0 < channels; c0 += channel_block) {
      const std::int64_t n = std::min(channel_block, channels - c0);
      alignas(64) P sum[channel_block];
      std::fill_n(sum, n, P(0));
      for (std::int64_t i = 0; i < count; ++i)
        for (std::int64_t j = 0; j < across.count[q]; ++j) {
          const P weight = down[i] * weights[j];
          const T* const from = pixels + (i * read + j) * channels + c0;
#pragma omp simd
          for (std::int64_t c = 0; c < n; ++c) sum[c] += weight * cpu::load(from + c);
        }
#pragma omp simd
      for (std::int64_t c = 0; c < n; ++c) cpu::store(into + c0 + c, sum[c]);
    }
  }
}

}  // namespace hearth::kernels::HEARTH_ISA_NAMESPACE
#else
namespace hearth::kernels {
namespace {

template <class P>
TapTable<P> make_table(const ResampledAxis& axis, bool transposed, cpu::Scratch& scratch) {
  const std::int64_t results = results_along(axis, transposed), stride = table_stride(axis, transposed);
  const TapTable<P> table{scratch.take<std::int64_t>(results), scratch.take<std::int64_t>(results),
                          scratch.take<P>(checked_mul(results, stride, "interpolate: weights")), stride};
  for (std::int64_t at = 0; at < results; ++at) table.fill(axis, transposed, at);
  return table;
}

void resample(const Resampling& r, bool transposed, const Tensor& from, const Tensor& to) {
  const std::int64_t height = to.dim(1), width = to.dim(2), channels = to.dim(3);
  const std::int64_t read_height = from.dim(1), read_width = from.dim(2);
  visit_dtype("interpolate", from.dtype(), Floats{}, [&]<class T>() {
    using P = acc_t<T>;
    cpu::Scratch scratch;
    const TapTable<P> down = make_table<P>(r.rows, transposed, scratch);
    const TapTable<P> across = make_table<P>(r.columns, transposed, scratch);
    const T* const in = from.data<T>();
    T* const out = to.data<T>();
    const std::int64_t rows_a_piece = std::max<std::int64_t>(1, 16384 / (width * channels));
    cpu::parallel_for(to.dim(0) * height, rows_a_piece, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t i = begin; i < end; ++i) {
        const std::int64_t row = i % height;
        const T* const rows = in + (i / height * read_height + down.first[row]) * read_width * channels;
        HEARTH_ISA_CALL(resample_row, rows, down.weights + row * down.stride, down.count[row], across, read_width,
                        width, channels, out + i * width * channels);
      }
    });
  });
}

}  // namespace

void interpolate(cpu::Stream&, const Resampling& r, const Tensor& x, const Tensor& y) { resample(r, false, x, y); }
void interpolate_grad(cpu::Stream&, const Resampling& r, const Tensor& dy, const Tensor& dx) {
  resample(r, true, dy, dx);
}

}  // namespace hearth::kernels
#endif
