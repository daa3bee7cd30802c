// SPDX-License-Identifier: Apache-2.0
// One pass over memory: x is read and y written once; arithmetic in f32 (f64 for f64).
#include "core/cpu/element.h"
#include "core/cpu/parallel.h"
#include "ops/pointwise/parametric_visit.h"

namespace hearth {}

#define HEARTH_ISA_SOURCE "ops/pointwise/parametric_cpu.cpp"
#include "core/cpu/foreach_isa.h"

#ifdef HEARTH_ISA_NAMESPACE
namespace hearth::kernels::HEARTH_ISA_NAMESPACE {

template <class F, class T>
void value_run(acc_t<T> a, acc_t<T> b, const T* x, T* y, std::int64_t n) {
#pragma omp simd
  for (std::int64_t i = 0; i < n; ++i) cpu::store(y + i, F::value(cpu::load(x + i), a, b));
}

template <class F, class T>
void slope_run(acc_t<T> a, acc_t<T> b, const T* x, const T* dy, T* dx, std::int64_t n) {
#pragma omp simd
  for (std::int64_t i = 0; i < n; ++i) cpu::store(dx + i, cpu::load(dy + i) * F::slope(cpu::load(x + i), a, b));
}

}  // namespace hearth::kernels::HEARTH_ISA_NAMESPACE
#else
namespace hearth::kernels {
namespace {

constexpr std::int64_t grain = 1 << 14;

}  // namespace

void parametric(cpu::Stream&, const ParametricFunction& f, const Tensor& x, const Tensor& y) {
  visit_dtype("parametric", x.dtype(), Floats{}, [&]<class T>() {
    const auto a = static_cast<acc_t<T> >(f.a), b = static_cast<acc_t<T> >(f.b);
    const T* const from = x.data<T>();
    T* const to = y.data<T>();
    visit_parametric(f.function, [&]<class F>(F, const char*, const char*) {
      cpu::parallel_for(x.size(), grain, [&](std::int64_t begin, std::int64_t end) {
        HEARTH_ISA_CALL(value_run<F>, a, b, from + begin, to + begin, end - begin);
      });
    });
  });
}

void parametric_grad(cpu::Stream&, const ParametricFunction& f, const Tensor& x, const Tensor& dy, const Tensor& dx) {
  visit_dtype("parametric", x.dtype(), Floats{}, [&]<class T>() {
    const auto a = static_cast<acc_t<T> >(f.a), b = static_cast<acc_t<T> >(f.b);
    const T *const from = x.data<T>(), *const arriving = dy.data<T>();
    T* const to = dx.data<T>();
    visit_parametric(f.function, [&]<class F>(F, const char*, const char*) {
      cpu::parallel_for(x.size(), grain, [&](std::int64_t begin, std::int64_t end) {
        HEARTH_ISA_CALL(slope_run<F>, a, b, from + begin, arriving + begin, to + begin, end - begin);
      });
    });
  });
}

}  // namespace hearth::kernels
#endif
