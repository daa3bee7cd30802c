// SPDX-License-Identifier: Apache-2.0
// The SGD update. Traffic: reads w, g (and m), writes w (and m) and the copies.
#include "optim/step.h"

namespace hearth {}

#define HEARTH_ISA_SOURCE "optim/sgd_cpu.cpp"
#include "core/cpu/foreach_isa.h"

#ifdef HEARTH_ISA_NAMESPACE
namespace hearth::kernels::HEARTH_ISA_NAMESPACE {

template <class T>
void sgd_plain(T* w, const T* g, std::int64_t n, const SgdRange<T>& range) {
  const SgdRange<T> c = range;
#pragma omp simd
  for (std::int64_t i = 0; i < n; ++i) w[i] = sgd_step(w[i], g[i], c);
}

template <class T>
void sgd_momentum(T* w, const T* g, T* m, std::int64_t n, const SgdRange<T>& range) {
  const SgdRange<T> c = range;
#pragma omp simd
  for (std::int64_t i = 0; i < n; ++i) {
    const SgdState<T> next = sgd_step(SgdState<T>{w[i], m[i]}, g[i], c);
    m[i] = next.m;
    w[i] = next.w;
  }
}

template <class T>
void sgd_momentum_of_decay(T* w, const T* g, T* m, std::int64_t n, const SgdRange<T>& range) {
  const SgdRange<T> c = range;
#pragma omp simd
  for (std::int64_t i = 0; i < n; ++i) {
    const T decay = c.decay * w[i], moved = c.momentum * m[i] + decay;
    w[i] -= c.lr * (g[i] * c.scale_1 * c.scale_2 + c.ahead * decay + c.nesterov_coefficient * moved);
    m[i] = moved;
  }
}

}  // namespace hearth::kernels::HEARTH_ISA_NAMESPACE
#else
namespace hearth::kernels {

void sgd_update(cpu::Stream&, const UpdateBuffers& on, const Tensor& moment, const Staged<SgdCoefficients>& staged,
                std::span<const double> trust) {
  const SgdCoefficients& coefficients = staged.value();
  if (coefficients.skip) return;
  visit_dtype("sgd", on.values.dtype(), FullFloats{}, [&]<class T>() {
    T* w = on.values.data<T>();
    const T* g = on.grads.data<T>();
    T* m = moment.defined() ? moment.data<T>() : nullptr;
    on.plan.for_each_piece([&](const optim::UpdatePlan::Piece& piece) {
      const optim::ParameterRange& range = on.plan.ranges()[piece.range];
      const std::int64_t begin = piece.begin, n = piece.end - piece.begin;
      const double factor = trust.empty() ? 1.0 : trust[piece.range];
      const auto constants = sgd_range<T>(coefficients, range.lr_scale, range.weight_decay, factor);
      if (m && coefficients.decay_alone)
        HEARTH_ISA_CALL_UP_TO_V3(sgd_momentum_of_decay<T>, w + begin, g + begin, m + begin, n, constants);
      else if (m)
        HEARTH_ISA_CALL(sgd_momentum<T>, w + begin, g + begin, m + begin, n, constants);
      else
        HEARTH_ISA_CALL(sgd_plain<T>, w + begin, g + begin, n, constants);
      copy_piece(on.values, on.copies, piece.begin, piece.end);
    });
  });
}

}  // namespace hearth::kernels
#endif
