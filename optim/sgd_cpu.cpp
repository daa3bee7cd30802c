// SPDX-License-Identifier: Apache-2.0
// The SGD update. Traffic: reads w, g (and m), writes w (and m).
#include "hearth/optim/sgd.h"

#define HEARTH_ISA_SOURCE "hearth/optim/sgd_cpu.cpp"
#include "hearth/core/cpu/foreach_isa.h"

#ifdef HEARTH_ISA_NAMESPACE
namespace hearth::kernels::HEARTH_ISA_NAMESPACE {

template <class T>
void sgd_plain(T* w, const T* g, std::int64_t n, T lr, T scale_1, T scale_2, T decay) {
#pragma omp simd
  for (std::int64_t i = 0; i < n; ++i) {
    const T d = g[i] * scale_1 * scale_2 + decay * w[i];
    w[i] -= lr * d;
  }
}

template <class T>
void sgd_momentum(T* w, const T* g, T* m, std::int64_t n, T lr, T scale_1, T scale_2, T decay, T momentum, T arriving,
                  T ahead) {
  // ahead is the share of the plain gradient in the step: 0, or 1 for nesterov, which also weighs m by `momentum`.
  const T weight_of_m = ahead != T(0) ? momentum : T(1);
#pragma omp simd
  for (std::int64_t i = 0; i < n; ++i) {
    const T d = g[i] * scale_1 * scale_2 + decay * w[i];
    const T moved = momentum * m[i] + arriving * d;
    m[i] = moved;
    w[i] -= lr * (ahead * d + weight_of_m * moved);
  }
}

}  // namespace hearth::kernels::HEARTH_ISA_NAMESPACE
#else
namespace hearth::kernels {

void sgd_update(cpu::Stream&, const Tensor& values, const Tensor& grads, const Tensor& moment,
                const optim::UpdatePlan& plan, const SgdCoefficients& coefficients) {
  visit_dtype("sgd", values.dtype(), WideFloats{}, [&]<class T>() {
    T* w = values.data<T>();
    const T* g = grads.data<T>();
    T* m = moment.defined() ? moment.data<T>() : nullptr;
    const T momentum = static_cast<T>(coefficients.momentum);
    const T arriving = static_cast<T>(coefficients.arriving);
    const T ahead = coefficients.nesterov ? T(1) : T(0);
    plan.for_each_piece([&](const optim::UpdatePlan::Piece& piece) {
      const optim::ParameterRange& range = plan.ranges()[piece.range];
      const std::int64_t begin = piece.begin, n = piece.end - piece.begin;
      const double trust = coefficients.trust.empty() ? 1.0 : coefficients.trust[piece.range];
      const T lr = static_cast<T>(coefficients.lr * range.lr_scale);
      const T decay = static_cast<T>(trust * range.weight_decay);
      const optim::SplitScale<T> scale(trust * coefficients.grad_scale);
      if (m) {
        HEARTH_ISA_CALL(sgd_momentum<T>, w + begin, g + begin, m + begin, n, lr, scale.first, scale.second, decay,
                        momentum, arriving, ahead);
      } else {
        HEARTH_ISA_CALL(sgd_plain<T>, w + begin, g + begin, n, lr, scale.first, scale.second, decay);
      }
    });
  });
}

}  // namespace hearth::kernels
#endif
