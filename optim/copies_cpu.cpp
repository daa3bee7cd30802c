// SPDX-License-Identifier: Apache-2.0
#include "core/cpu/element.h"
#include "optim/copies.h"
#include "optim/ema.h"

namespace hearth {}

#define HEARTH_ISA_SOURCE "optim/copies_cpu.cpp"
#include "core/cpu/foreach_isa.h"

#ifdef HEARTH_ISA_NAMESPACE
namespace hearth::optim::HEARTH_ISA_NAMESPACE {

template <class N>
void cast_down_run(const float* wide, N* low_precision, std::int64_t n) {
#pragma omp simd
  for (std::int64_t i = 0; i < n; ++i) cpu::store(low_precision + i, wide[i]);
}

}  // namespace hearth::optim::HEARTH_ISA_NAMESPACE
#else
namespace hearth::optim {

void copy_piece(const Tensor& values, const Copies& copies, std::int64_t begin, std::int64_t end) {
  if (copies.low_precision.defined())
    visit_dtype("low-precision copy", copies.low_precision.dtype(), Types<f16, bf16>{}, [&]<class N>() {
      HEARTH_ISA_CALL(cast_down_run<N>, values.data<float>() + begin, copies.low_precision.data<N>() + begin,
                      end - begin);
    });
  if (copies.average.defined() && copies.weight->value() != 0)
    visit_dtype("moving average", values.dtype(), FullFloats{}, [&]<class T>() {
      kernels::blend(copies.average.data<T>() + begin, values.data<T>() + begin, end - begin,
                     static_cast<T>(copies.weight->value()));
    });
}

}  // namespace hearth::optim
#endif
