// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "core/cpu/element.h"
#include "core/cpu/parallel.h"
#include "core/cpu/scratch.h"
#include "ops/loss/mse.h"

namespace hearth {}

#define HEARTH_ISA_SOURCE "ops/loss/mse_cpu.cpp"
#include "core/cpu/foreach_isa.h"

#ifdef HEARTH_ISA_NAMESPACE
namespace hearth::kernels::HEARTH_ISA_NAMESPACE {

template <class T>
double squares_of_run(const T* x, const T* target, std::int64_t n) {
  double sum = 0;
#pragma omp simd reduction(+ : sum)
  for (std::int64_t i = 0; i < n; ++i) {
    const double d = static_cast<double>(cpu::load(x + i)) - static_cast<double>(cpu::load(target + i));
    sum += d * d;
  }
  return sum;
}

template <class T>
void scaled_difference(const T* x, const T* target, acc_t<T> factor, T* dx, std::int64_t n) {
#pragma omp simd
  for (std::int64_t i = 0; i < n; ++i) cpu::store(dx + i, (cpu::load(x + i) - cpu::load(target + i)) * factor);
}

}  // namespace hearth::kernels::HEARTH_ISA_NAMESPACE
#else
namespace hearth::kernels {
namespace {

constexpr std::int64_t grain = 1 << 15;

}  // namespace

void squared_error(cpu::Stream&, const Tensor& x, const Tensor& target, const Tensor& y) {
  const std::int64_t n = x.size(), pieces = (n + grain - 1) / grain;
  cpu::Scratch scratch;
  double* const partial = scratch.take<double>(pieces);
  visit_dtype("mse", x.dtype(), Floats{}, [&]<class T>() {
    const T *a = x.data<T>(), *b = target.data<T>();
    cpu::parallel_chunks(pieces, [&](std::int64_t i) {
      const std::int64_t begin = i * grain;
      partial[i] = HEARTH_ISA_CALL(squares_of_run, a + begin, b + begin, std::min(grain, n - begin));
    });
  });
  double sum = 0;
  for (std::int64_t i = 0; i < pieces; ++i) sum += partial[i];
  const double mean = sum / static_cast<double>(n);
  visit_dtype("mse", y.dtype(), WideFloats{}, [&]<class P>() { *y.data<P>() = static_cast<P>(mean); });
}

void squared_error_grad(cpu::Stream&, const Tensor& x, const Tensor& target, const Tensor& dy, double factor,
                        const Tensor& dx) {
  visit_dtype("mse", x.dtype(), Floats{}, [&]<class T>() {
    const T *a = x.data<T>(), *b = target.data<T>();
    T* const out = dx.data<T>();
    const acc_t<T> scale = static_cast<acc_t<T> >(factor * static_cast<double>(*dy.data<acc_t<T> >()));
    cpu::parallel_for(x.size(), grain, [&](std::int64_t begin, std::int64_t end) {
      HEARTH_ISA_CALL(scaled_difference, a + begin, b + begin, scale, out + begin, end - begin);
    });
  });
}

}  // namespace hearth::kernels
#endif
