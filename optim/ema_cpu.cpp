// SPDX-License-Identifier: Apache-2.0
// Blending and exchanging flat buffers. Traffic: reads and writes each element once.
#include <utility>

#include "core/cpu/parallel.h"
#include "optim/ema.h"

namespace hearth {}

#define HEARTH_ISA_SOURCE "optim/ema_cpu.cpp"
#include "core/cpu/foreach_isa.h"

#ifdef HEARTH_ISA_NAMESPACE
namespace hearth::kernels::HEARTH_ISA_NAMESPACE {

template <class T>
void blend_piece(T* average, const T* values, std::int64_t n, T weight) {
#pragma omp simd
  for (std::int64_t i = 0; i < n; ++i) average[i] += weight * (values[i] - average[i]);
}

template <class T>
void exchange_piece(T* a, T* b, std::int64_t n) {
#pragma omp simd
  for (std::int64_t i = 0; i < n; ++i) {
    const T kept = a[i];
    a[i] = b[i];
    b[i] = kept;
  }
}

}  // namespace hearth::kernels::HEARTH_ISA_NAMESPACE
#else
namespace hearth::kernels {

namespace {
constexpr std::int64_t blend_elements = 65536;
}

template <class T>
void blend(T* average, const T* values, std::int64_t n, T weight) {
  HEARTH_ISA_CALL(blend_piece<T>, average, values, n, weight);
}
template void blend(float*, const float*, std::int64_t, float);
template void blend(double*, const double*, std::int64_t, double);

void blend(cpu::Stream&, const Tensor& average, const Tensor& values, const Staged<double>& staged) {
  if (staged.value() == 0) return;
  visit_dtype("ema", values.dtype(), FullFloats{}, [&]<class T>() {
    T* target = average.data<T>();
    const T* source = values.data<T>();
    const T weight = static_cast<T>(staged.value());
    cpu::parallel_for(values.size(), blend_elements, [&](std::int64_t begin, std::int64_t end) {
      blend(target + begin, source + begin, end - begin, weight);
    });
  });
}

void exchange(cpu::Stream&, const Tensor& a, const Tensor& b) {
  visit_dtype("ema", a.dtype(), FullFloats{}, [&]<class T>() {
    T* first = a.data<T>();
    T* second = b.data<T>();
    cpu::parallel_for(a.size(), blend_elements, [&](std::int64_t begin, std::int64_t end) {
      HEARTH_ISA_CALL(exchange_piece<T>, first + begin, second + begin, end - begin);
    });
  });
}

}  // namespace hearth::kernels
#endif
