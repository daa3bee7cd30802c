// SPDX-License-Identifier: Apache-2.0
// Vectors hold channels. A task has some boxes; in the gradient it has rows of the maps, and goes through the boxes in
// order, so that pieces of work never meet.
#include <algorithm>

#include "core/cpu/element.h"
#include "core/cpu/parallel.h"
#include "core/dtype.h"
#include "ops/boxes/roi_align.h"
#include "ops/scratch.h"

namespace hearth {}

#define HEARTH_ISA_SOURCE "ops/boxes/roi_align_cpu.cpp"
#include "core/cpu/foreach_isa.h"

#ifdef HEARTH_ISA_NAMESPACE
namespace hearth::kernels::HEARTH_ISA_NAMESPACE {

template <class T, class P>
void add_weighted(const T* x, P weight, std::int64_t n, P* sum) {
#pragma omp simd
  for (std::int64_t i = 0; i < n; ++i) sum[i] += weight * cpu::load(x + i);
}

}  // namespace hearth::kernels::HEARTH_ISA_NAMESPACE
#else
namespace hearth::kernels {
namespace {

template <class T>
void store_sums(const acc_t<T>* sum, std::int64_t n, T* to) {
  for (std::int64_t i = 0; i < n; ++i) cpu::store(to + i, sum[i]);
}

/// The weights of the pixels that a bin reads.
template <class P>
RoiRange fill_weights(const RoiAxis<P>& axis, std::int64_t p, P factor, P* weights) {
  const RoiRange pixels = axis.pixels_of(p);
  for (std::int64_t i = pixels.first; i < pixels.last; ++i) weights[i - pixels.first] = factor * axis.weight(p, i);
  return pixels;
}

}  // namespace

void roi_align(cpu::Stream&, const RoiGrid& grid, const Tensor& x, const Tensor& boxes, const Tensor& images,
               const Tensor& y) {
  const std::int64_t height = x.dim(1), width = x.dim(2), channels = x.dim(3);
  const std::int64_t* const image = images.data<std::int64_t>();
  visit_dtype("roi_align", x.dtype(), Floats{}, [&]<class T>() {
    using P = acc_t<T>;
    const T* const from = x.data<T>();
    const P* const box = boxes.data<P>();
    T* const to = y.data<T>();
    cpu::parallel_for(boxes.dim(0), 1, [&](std::int64_t begin, std::int64_t end) {
      cpu::Scratch scratch;
      P *const down_weights = scratch.take<P>(height), *const across_weights = scratch.take<P>(width);
      P* const sum = scratch.take<P>(channels);
      for (std::int64_t k = begin; k < end; ++k) {
        const P* const b = box + k * 4;
        const RoiAxis<P> down(b[1], b[3], grid, grid.rows, height), across(b[0], b[2], grid, grid.columns, width);
        const P share = roi_share(down, across);
        T* into = to + k * grid.rows * grid.columns * channels;
        for (std::int64_t p = 0; p < grid.rows; ++p) {
          const RoiRange rows = fill_weights(down, p, share, down_weights);
          for (std::int64_t q = 0; q < grid.columns; ++q, into += channels) {
            const RoiRange columns = fill_weights(across, q, P(1), across_weights);
            std::fill_n(sum, channels, P(0));
            for (std::int64_t h = rows.first; h < rows.last; ++h)
              for (std::int64_t w = columns.first; w < columns.last; ++w) {
                const P weight = down_weights[h - rows.first] * across_weights[w - columns.first];
                const T* const pixel = from + ((image[k] * height + h) * width + w) * channels;
                if (weight != P(0)) HEARTH_ISA_CALL(add_weighted, pixel, weight, channels, sum);
              }
            store_sums(sum, channels, into);
          }
        }
      }
    });
  });
}

void roi_align_grad(cpu::Stream&, const RoiGrid& grid, const Tensor& boxes, const Tensor& images, const Tensor& dy,
                    const Tensor& dx) {
  const std::int64_t height = dx.dim(1), width = dx.dim(2), channels = dx.dim(3), count = boxes.dim(0);
  const std::int64_t* const image = images.data<std::int64_t>();
  visit_dtype("roi_align", dx.dtype(), Floats{}, [&]<class T>() {
    using P = acc_t<T>;
    const T* const from = dy.data<T>();
    const P* const box = boxes.data<P>();
    T* const to = dx.data<T>();
    cpu::parallel_for(dx.dim(0) * height, 1, [&](std::int64_t begin, std::int64_t end) {
      cpu::Scratch scratch;
      P *const sum = scratch.take<P>(width * channels), *const weights = scratch.take<P>(width);
      for (std::int64_t row = begin; row < end; ++row) {
        std::fill_n(sum, width * channels, P(0));
        for (std::int64_t k = 0; k < count; ++k) {
          if (image[k] != row / height) continue;
          const P* const b = box + k * 4;
          const RoiAxis<P> down(b[1], b[3], grid, grid.rows, height);
          const RoiRange bins = down.bins_of(row % height);
          if (bins.first >= bins.last) continue;
          const RoiAxis<P> across(b[0], b[2], grid, grid.columns, width);
          for (std::int64_t p = bins.first; p < bins.last; ++p) {
            const P weight = down.weight(p, row % height) * roi_share(down, across);
            if (weight == P(0)) continue;
            for (std::int64_t q = 0; q < grid.columns; ++q) {
              const RoiRange columns = fill_weights(across, q, weight, weights);
              const T* const bin = from + ((k * grid.rows + p) * grid.columns + q) * channels;
              for (std::int64_t w = columns.first; w < columns.last; ++w)
                HEARTH_ISA_CALL(add_weighted, bin, weights[w - columns.first], channels, sum + w * channels);
            }
          }
        }
        store_sums(sum, width * channels, to + row * width * channels);
      }
    });
  });
}

}  // namespace hearth::kernels
#endif
