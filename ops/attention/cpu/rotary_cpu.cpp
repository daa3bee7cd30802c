// SPDX-License-Identifier: Apache-2.0
// A table of cosines and sines for all rows, made once; then one pass over x.
#include <algorithm>
#include <cmath>

#include "core/cpu/element.h"
#include "core/cpu/parallel.h"
#include "ops/attention/rotary.h"
#include "ops/scratch.h"

namespace hearth {}

#define HEARTH_ISA_SOURCE "ops/attention/cpu/rotary_cpu.cpp"
#include "core/cpu/foreach_isa.h"

#ifdef HEARTH_ISA_NAMESPACE
namespace hearth::kernels::HEARTH_ISA_NAMESPACE {

/// One row of all heads; cosine and sine have half a head's width.
template <class T>
void rotate_row(const T* x, T* y, const acc_t<T>* cosine, const acc_t<T>* sine, std::int64_t heads,
                std::int64_t rotated, std::int64_t width) {
  using P = acc_t<T>;
  const std::int64_t half = width / 2;
  for (std::int64_t h = 0; h < rotated; ++h, x += width, y += width) {
#pragma omp simd
    for (std::int64_t d = 0; d < half; ++d) {
      const P a = cpu::load(x + d), b = cpu::load(x + half + d);
      cpu::store(y + d, a * cosine[d] - b * sine[d]);
      cpu::store(y + half + d, b * cosine[d] + a * sine[d]);
    }
  }
  if (x != y) std::copy_n(x, (heads - rotated) * width, y);
}

}  // namespace hearth::kernels::HEARTH_ISA_NAMESPACE
#else
namespace hearth::kernels {

void rotary(cpu::Stream&, const RotaryArguments& a, const Tensor& x, const Tensor& y) {
  visit_dtype("rotary", x.dtype(), Floats{}, [&]<class T>() {
    using P = acc_t<T>;
    const std::int64_t half = a.width / 2, row = a.heads * a.width;
    const std::int64_t grain = std::max<std::int64_t>(1, (1 << 14) / row);
    cpu::Scratch scratch;
    P* const cosine = scratch.take<P>(a.rows * half);
    P* const sine = scratch.take<P>(a.rows * half);
    cpu::parallel_for(a.rows, std::max<std::int64_t>(1, 1024 / half), [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t t = begin; t < end; ++t)
        for (std::int64_t d = 0; d < half; ++d) {
          const double angle =
              static_cast<double>(a.first_position + t) * a.frequency[static_cast<std::size_t>(d)] * a.direction;
          cosine[t * half + d] = static_cast<P>(std::cos(angle));
          sine[t * half + d] = static_cast<P>(std::sin(angle));
        }
    });
    const T* const from = x.data<T>();
    T* const to = y.data<T>();
    cpu::parallel_for(a.samples * a.rows, grain, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t i = begin; i < end; ++i) {
        std::int64_t t = i % a.rows;
        if (a.segments != nullptr) t -= std::clamp<std::int64_t>(a.segments[2 * i], 0, t);
        HEARTH_ISA_CALL(rotate_row, from + i * row, to + i * row, cosine + t * half, sine + t * half, a.heads,
                        a.rotated, a.width);
      }
    });
  });
}

}  // namespace hearth::kernels
#endif
