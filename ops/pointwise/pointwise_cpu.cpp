// SPDX-License-Identifier: Apache-2.0
// One pass over memory: x is read and y written once; arithmetic in f32 (f64 for f64).
#include "core/cpu/element.h"
#include "core/cpu/parallel.h"
#include "ops/pointwise/value_slope.h"

namespace hearth {}

#define HEARTH_ISA_SOURCE "ops/pointwise/pointwise_cpu.cpp"
#include "core/cpu/foreach_isa.h"

#ifdef HEARTH_ISA_NAMESPACE
namespace hearth::kernels::HEARTH_ISA_NAMESPACE {

template <class F, class T>
void value_run(const Value<F, acc_t<T> > value, const T* x, T* y, std::int64_t n) {
#pragma omp simd
  for (std::int64_t i = 0; i < n; ++i) cpu::store(y + i, value(cpu::load(x + i)));
}

template <class F, class T>
void slope_run(const Slope<F, acc_t<T> > slope, const T* kept, const T* dy, T* dx, std::int64_t n) {
#pragma omp simd
  for (std::int64_t i = 0; i < n; ++i) cpu::store(dx + i, slope(cpu::load(kept + i), cpu::load(dy + i)));
}

}  // namespace hearth::kernels::HEARTH_ISA_NAMESPACE
#else
namespace hearth::kernels {
namespace {

// Large enough to pay for a task, small enough to share among many threads.
constexpr std::int64_t grain = 1 << 14;

}  // namespace

void pointwise(cpu::Stream&, const PointwiseFunction& f, const Tensor& x, const Tensor& y) {
  visit_dtype("pointwise", x.dtype(), Floats{}, [&]<class T>() {
    const T* const from = x.data<T>();
    T* const to = y.data<T>();
    visit_function(f.which, [&]<class F>(F, const char*, const char*) {
      const Value<F, acc_t<T> > value{static_cast<acc_t<T> >(f.a), static_cast<acc_t<T> >(f.b)};
      cpu::parallel_for(x.size(), grain, [&](std::int64_t begin, std::int64_t end) {
        HEARTH_ISA_CALL(value_run<F>, value, from + begin, to + begin, end - begin);
      });
    });
  });
}

void pointwise_grad(cpu::Stream&, const PointwiseFunction& f, const Tensor& kept, const Tensor& dy, const Tensor& dx) {
  visit_dtype("pointwise", dy.dtype(), Floats{}, [&]<class T>() {
    const T* const in = dy.data<T>();
    // A function that needs neither x nor y ignores what it is given here.
    const T* const state = kept.defined() ? kept.data<T>() : in;
    T* const out = dx.data<T>();
    visit_function(f.which, [&]<class F>(F, const char*, const char*) {
      const Slope<F, acc_t<T> > slope{static_cast<acc_t<T> >(f.a), static_cast<acc_t<T> >(f.b)};
      cpu::parallel_for(dy.size(), grain, [&](std::int64_t begin, std::int64_t end) {
        HEARTH_ISA_CALL(slope_run<F>, slope, state + begin, in + begin, out + begin, end - begin);
      });
    });
  });
}

}  // namespace hearth::kernels
#endif
