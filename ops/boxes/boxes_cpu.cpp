// SPDX-License-Identifier: Apache-2.0
// Boxes one after the other, as they lie in memory; in pairs, a row of b's numbers each, so that vectors hold boxes.
#include <algorithm>

#include "core/cpu/parallel.h"
#include "core/dtype.h"
#include "ops/boxes/box_functors.h"
#include "ops/boxes/boxes.h"
#include "ops/scratch.h"

namespace hearth {}

#define HEARTH_ISA_SOURCE "ops/boxes/boxes_cpu.cpp"
#include "core/cpu/foreach_isa.h"

#ifdef HEARTH_ISA_NAMESPACE
namespace hearth::kernels::HEARTH_ISA_NAMESPACE {

/// y[j] of the box a and box j of b [4, m].
template <class F, class P>
void pair_row(F, const P* a, const P* b, std::int64_t m, const P* numbers, P* y) {
#pragma omp simd
  for (std::int64_t j = 0; j < m; ++j) {
    const P box[4] = {b[j], b[m + j], b[2 * m + j], b[3 * m + j]};
    F::value(a, box, numbers, y + j);
  }
}

}  // namespace hearth::kernels::HEARTH_ISA_NAMESPACE
#else
namespace hearth::kernels {
namespace {

constexpr std::int64_t box_grain = 1 << 12;

using box_functors::NumbersAs;

/// f(functor, numbers of type P) where the function and the type are known.
template <class Visit>
void visit_boxes(BoxFunction function, DType dtype, const BoxNumbers& numbers, Visit&& f) {
  visit_dtype("boxes", dtype, FullFloats{}, [&]<class P>() {
    const NumbersAs<P> converted(numbers);
    box_functors::visit(function, [&]<class F>(F functor) { f(functor, converted); });
  });
}

/// The box of b beside box i of a; null where there is no b.
template <class P>
const P* beside(const P* b, std::int64_t i, std::int64_t period) {
  return b == nullptr ? nullptr : b + i % period * 4;
}

}  // namespace

void map_boxes(cpu::Stream&, BoxFunction function, const Tensor& a, const Tensor& b, const BoxNumbers& numbers,
               const Tensor& y) {
  const std::int64_t period = b.defined() ? b.size() / 4 : 1;
  visit_boxes(function, a.dtype(), numbers, [&]<class F, class P>(F, const NumbersAs<P>& converted) {
    const P *const from = a.data<P>(), *const other = b.defined() ? b.data<P>() : nullptr;
    P* const to = y.data<P>();
    cpu::parallel_for(a.size() / 4, box_grain, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t i = begin; i < end; ++i)
        F::value(from + i * 4, beside(other, i, period), converted.at, to + i * F::outputs);
    });
  });
}

void map_boxes_grad(cpu::Stream&, BoxFunction function, const Tensor& a, const Tensor& b, const BoxNumbers& numbers,
                    const Tensor& dy, const Tensor& da, const Tensor& db) {
  const std::int64_t period = b.defined() ? b.size() / 4 : 1;
  visit_boxes(function, a.dtype(), numbers, [&]<class F, class P>(F, const NumbersAs<P>& converted) {
    if constexpr (F::slope_a) {
      const P *const from = a.data<P>(), *const other = b.defined() ? b.data<P>() : nullptr;
      const P* const arriving = dy.data<P>();
      P *const to_a = da.defined() ? da.data<P>() : nullptr, *const to_b = db.defined() ? db.data<P>() : nullptr;
      cpu::parallel_for(a.size() / 4, box_grain, [&](std::int64_t begin, std::int64_t end) {
        for (std::int64_t i = begin; i < end; ++i) {
          P of_a[4], of_b[4];
          F::slope(from + i * 4, beside(other, i, period), converted.at, arriving + i * F::outputs, of_a, of_b);
          if (to_a != nullptr) std::copy_n(of_a, 4, to_a + i * 4);
          if constexpr (F::slope_b)
            if (to_b != nullptr) std::copy_n(of_b, 4, to_b + i * 4);
        }
      });
    }
  });
}

void pair_boxes(cpu::Stream&, BoxFunction function, const Tensor& a, const Tensor& b, const BoxNumbers& numbers,
                const Tensor& y) {
  const std::int64_t batch = y.dim(0), n = y.dim(1), m = y.dim(2);
  visit_dtype("boxes", a.dtype(), FullFloats{}, [&]<class P>() {
    cpu::Scratch scratch;
    P* const columns = scratch.take<P>(b.size());
    const P *const left = a.data<P>(), *const right = b.data<P>();
    for (std::int64_t i = 0; i < b.size(); ++i) columns[i / (4 * m) * 4 * m + i % 4 * m + i / 4 % m] = right[i];
    P* const to = y.data<P>();
    const NumbersAs<P> converted(numbers);
    box_functors::visit_overlap(function, [&]<class F>(F functor) {
      cpu::parallel_for(batch * n, std::max<std::int64_t>(1, box_grain / m), [&](std::int64_t begin, std::int64_t end) {
        for (std::int64_t i = begin; i < end; ++i)
          HEARTH_ISA_CALL_FOR(P, pair_row, functor, left + i * 4, columns + i / n * 4 * m, m, converted.at, to + i * m);
      });
    });
  });
}

}  // namespace hearth::kernels
#endif
