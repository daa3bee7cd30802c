// SPDX-License-Identifier: Apache-2.0
// The Adam update. Traffic: reads w, g, m, v and writes w, m, v.
#include <cmath>
#include <limits>

#include "hearth/optim/adam.h"

// The flavours below include this file again.
#ifndef HEARTH_ISA_NAMESPACE
namespace hearth::kernels {

/// Constants of one range, in the arithmetic's type.
template <class T>
struct AdamRange {
  T scale_1, scale_2;
  T bound;                  // on gradient elements
  T coupled_decay, shrink;  // shrink is 1 - lr * decay
  T beta1, rest1, beta2, rest2;
  T step, inverse_root, eps;  // lr / correction1, 1 / sqrt(correction2)
};

}  // namespace hearth::kernels
#endif

#define HEARTH_ISA_SOURCE "hearth/optim/adam_cpu.cpp"
#include "hearth/core/cpu/foreach_isa.h"

#ifdef HEARTH_ISA_NAMESPACE
namespace hearth::kernels::HEARTH_ISA_NAMESPACE {

template <class T>
void adam(T* w, const T* g, T* m, T* v, std::int64_t n, const AdamRange<T>& range) {
  const AdamRange<T> c = range;
#pragma omp simd
  for (std::int64_t i = 0; i < n; ++i) {
    T d = g[i] * c.scale_1 * c.scale_2;
    const T size = std::abs(d);
    const T bounded = size > c.bound ? std::copysign(c.bound, d) : d;
    d = size <= std::numeric_limits<T>::max() ? bounded : d;
    d += c.coupled_decay * w[i];
    const T first = c.beta1 * m[i] + c.rest1 * d;
    const T second = c.beta2 * v[i] + c.rest2 * d * d;
    m[i] = first;
    v[i] = second;
    w[i] = c.shrink * w[i] - c.step * (first / (std::sqrt(second) * c.inverse_root + c.eps));
  }
}

}  // namespace hearth::kernels::HEARTH_ISA_NAMESPACE
#else
namespace hearth::kernels {

void adam_update(cpu::Stream&, const Tensor& values, const Tensor& grads, const Tensor& first, const Tensor& second,
                 const optim::UpdatePlan& plan, const AdamCoefficients& coefficients) {
  visit_dtype("adam", values.dtype(), WideFloats{}, [&]<class T>() {
    T* w = values.data<T>();
    const T* g = grads.data<T>();
    T* m = first.data<T>();
    T* v = second.data<T>();
    const optim::SplitScale<T> scale(coefficients.grad_scale);
    plan.for_each_piece([&](const optim::UpdatePlan::Piece& piece) {
      const optim::ParameterRange& range = plan.ranges()[piece.range];
      const std::int64_t begin = piece.begin, n = piece.end - piece.begin;
      const double lr = coefficients.lr * range.lr_scale;
      const double decay = range.weight_decay;
      const AdamRange<T> constants{
          .scale_1 = scale.first,
          .scale_2 = scale.second,
          .bound = sizeof(T) == 4 ? T(1e18) : T(1e150),
          .coupled_decay = static_cast<T>(coefficients.decoupled ? 0.0 : decay),
          .shrink = static_cast<T>(coefficients.decoupled ? 1.0 - lr * decay : 1.0),
          .beta1 = static_cast<T>(coefficients.beta1),
          .rest1 = static_cast<T>(1.0 - coefficients.beta1),
          .beta2 = static_cast<T>(coefficients.beta2),
          .rest2 = static_cast<T>(1.0 - coefficients.beta2),
          .step = static_cast<T>(lr / coefficients.correction1),
          .inverse_root = static_cast<T>(1.0 / std::sqrt(coefficients.correction2)),
          .eps = static_cast<T>(coefficients.eps),
      };
      HEARTH_ISA_CALL(adam<T>, w + begin, g + begin, m + begin, v + begin, n, constants);
    });
  });
}

}  // namespace hearth::kernels
#endif
