// SPDX-License-Identifier: Apache-2.0
#include "hearth/core/cpu/element.h"
#include "hearth/optim/narrow.h"

#define HEARTH_ISA_SOURCE "hearth/optim/narrow_cpu.cpp"
#include "hearth/core/cpu/foreach_isa.h"

#ifdef HEARTH_ISA_NAMESPACE
namespace hearth::kernels::HEARTH_ISA_NAMESPACE {

template <class N>
void narrow_run(const float* wide, N* narrow, std::int64_t n) {
#pragma omp simd
  for (std::int64_t i = 0; i < n; ++i) cpu::store(narrow + i, wide[i]);
}

}  // namespace hearth::kernels::HEARTH_ISA_NAMESPACE
#else
namespace hearth::kernels {

void narrow_piece(const Tensor& values, const Tensor& narrow, std::int64_t begin, std::int64_t end) {
  if (!narrow.defined()) return;
  visit_dtype("narrow copy", narrow.dtype(), Types<f16, bf16>{}, [&]<class N>() {
    HEARTH_ISA_CALL(narrow_run<N>, values.data<float>() + begin, narrow.data<N>() + begin, end - begin);
  });
}

}  // namespace hearth::kernels
#endif
