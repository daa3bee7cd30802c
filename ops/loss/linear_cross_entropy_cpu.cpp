// SPDX-License-Identifier: Apache-2.0
#include "core/cpu/element.h"
#include "core/cpu/parallel.h"
#include "ops/loss/linear_cross_entropy.h"

namespace hearth {}

#define HEARTH_ISA_SOURCE "ops/loss/linear_cross_entropy_cpu.cpp"
#include "core/cpu/foreach_isa.h"

#ifdef HEARTH_ISA_NAMESPACE
namespace hearth::kernels::HEARTH_ISA_NAMESPACE {

template <class P, class T>
void scale_run(const P* from, P factor, bool adds, T* into, std::int64_t n) {
  if (adds) {
#pragma omp simd
    for (std::int64_t i = 0; i < n; ++i) cpu::store(into + i, cpu::load(into + i) + from[i] * factor);
  } else {
#pragma omp simd
    for (std::int64_t i = 0; i < n; ++i) cpu::store(into + i, from[i] * factor);
  }
}

}  // namespace hearth::kernels::HEARTH_ISA_NAMESPACE
#else
namespace hearth::kernels {

void scale_gradient(cpu::Stream&, const Tensor& from, const Tensor& dy, const Tensor& row_weight, double factor,
                    bool adds, const Tensor& into) {
  visit_dtype("linear_cross_entropy", into.dtype(), Floats{}, [&]<class T>() {
    using P = acc_t<T>;
    const auto whole = static_cast<P>(static_cast<double>(*dy.data<P>()) * *row_weight.data<double>() * factor);
    const P* const values = from.data<P>();
    T* const out = into.data<T>();
    cpu::parallel_for(from.size(), 1 << 16, [&](std::int64_t begin, std::int64_t end) {
      HEARTH_ISA_CALL(scale_run, values + begin, whole, adds, out + begin, end - begin);
    });
  });
}

}  // namespace hearth::kernels
#endif
