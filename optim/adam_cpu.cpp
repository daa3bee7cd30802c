// SPDX-License-Identifier: Apache-2.0
// The Adam update. Traffic: reads w, g, m, v and writes w, m, v and the copies.
#include "optim/step.h"

namespace hearth {}

#define HEARTH_ISA_SOURCE "optim/adam_cpu.cpp"
#include "core/cpu/foreach_isa.h"

#ifdef HEARTH_ISA_NAMESPACE
namespace hearth::kernels::HEARTH_ISA_NAMESPACE {

template <class T>
void adam(T* w, const T* g, T* m, T* v, std::int64_t n, const AdamRange<T>& range) {
  const AdamRange<T> c = range;
#pragma omp simd
  for (std::int64_t i = 0; i < n; ++i) {
    const AdamState<T> next = adam_step(AdamState<T>{w[i], m[i], v[i]}, g[i], c);
    w[i] = next.w;
    m[i] = next.m;
    v[i] = next.v;
  }
}

}  // namespace hearth::kernels::HEARTH_ISA_NAMESPACE
#else
namespace hearth::kernels {

void adam_update(cpu::Stream&, const UpdateBuffers& on, const Tensor& first, const Tensor& second,
                 const Staged<AdamCoefficients>& staged) {
  const AdamCoefficients& coefficients = staged.value();
  if (coefficients.skip) return;
  visit_dtype("adam", on.values.dtype(), FullFloats{}, [&]<class T>() {
    T* w = on.values.data<T>();
    const T* g = on.grads.data<T>();
    T* m = first.data<T>();
    T* v = second.data<T>();
    on.plan.for_each_piece([&](const optim::UpdatePlan::Piece& piece) {
      const optim::ParameterRange& range = on.plan.ranges()[piece.range];
      const std::int64_t begin = piece.begin, n = piece.end - piece.begin;
      const auto constants = adam_range<T>(coefficients, range.lr_scale, range.weight_decay);
      HEARTH_ISA_CALL(adam<T>, w + begin, g + begin, m + begin, v + begin, n, constants);
      copy_piece(on.values, on.copies, piece.begin, piece.end);
    });
  });
}

}  // namespace hearth::kernels
#endif
