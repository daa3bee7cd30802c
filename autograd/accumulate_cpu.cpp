// SPDX-License-Identifier: Apache-2.0
#include "autograd/accumulate.h"
#include "core/cpu/element.h"
#include "core/cpu/parallel.h"

namespace hearth {}

#define HEARTH_ISA_SOURCE "autograd/accumulate_cpu.cpp"
#include "core/cpu/foreach_isa.h"

#ifdef HEARTH_ISA_NAMESPACE
namespace hearth::kernels::HEARTH_ISA_NAMESPACE {

template <class T>
void add_run(T* __restrict sum, const T* __restrict term, std::int64_t n) {
#pragma omp simd
  for (std::int64_t i = 0; i < n; ++i) cpu::store(sum + i, cpu::load(sum + i) + cpu::load(term + i));
}

}  // namespace hearth::kernels::HEARTH_ISA_NAMESPACE
#else
namespace hearth::kernels {

void add_into(cpu::Stream&, const Tensor& sum, const Tensor& term) {
  visit_dtype("gradient sum", sum.dtype(), Floats{}, [&]<class T>() {
    T* const a = sum.data<T>();
    const T* const b = term.data<T>();
    cpu::parallel_for(sum.size(), 1 << 16, [&](std::int64_t begin, std::int64_t end) {
      HEARTH_ISA_CALL(add_run, a + begin, b + begin, end - begin);
    });
  });
}

}  // namespace hearth::kernels
#endif
