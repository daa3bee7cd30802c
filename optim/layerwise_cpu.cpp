// SPDX-License-Identifier: Apache-2.0
// Norms of each parameter and the LAMB update. Each piece has its own partial sums, which are added in order.
// Traffic of LAMB: reads w, g, m, v and writes m, v; then reads w, m, v and writes w.
#include <cmath>
#include <limits>

#include "hearth/optim/clip.h"
#include "hearth/optim/layerwise.h"

// The flavours below include this file again.
#ifndef HEARTH_ISA_NAMESPACE
namespace hearth::kernels {

/// Constants of one range, in the arithmetic's type.
template <class T>
struct LambRange {
  T scale_1, scale_2;
  T bound;  // on gradient elements
  T decay;
  T beta1, rest1, beta2, rest2;
  T inverse1, inverse_root2, eps;  // 1 / correction1, 1 / sqrt(correction2)
};

}  // namespace hearth::kernels
#endif

#define HEARTH_ISA_SOURCE "hearth/optim/layerwise_cpu.cpp"
#include "hearth/core/cpu/foreach_isa.h"

#ifdef HEARTH_ISA_NAMESPACE
namespace hearth::kernels::HEARTH_ISA_NAMESPACE {

template <class T>
T lamb_direction(T w, T m, T v, const LambRange<T>& c) {
  return m * c.inverse1 / (std::sqrt(v) * c.inverse_root2 + c.eps) + c.decay * w;
}

/// Updates the moments; `u` [n] receives the direction.
template <class T>
void lamb_moments(const T* w, const T* g, T* m, T* v, T* u, std::int64_t n, const LambRange<T>& range) {
  const LambRange<T> c = range;
#pragma omp simd
  for (std::int64_t i = 0; i < n; ++i) {
    T d = g[i] * c.scale_1 * c.scale_2;
    const T size = std::abs(d);
    const T bounded = size > c.bound ? std::copysign(c.bound, d) : d;
    d = size <= std::numeric_limits<T>::max() ? bounded : d;
    const T first = c.beta1 * m[i] + c.rest1 * d;
    const T second = c.beta2 * v[i] + c.rest2 * d * d;
    m[i] = first;
    v[i] = second;
    u[i] = lamb_direction(w[i], first, second, c);
  }
}

template <class T>
void lamb_apply(T* w, const T* m, const T* v, std::int64_t n, T step, const LambRange<T>& range) {
  const LambRange<T> c = range;
#pragma omp simd
  for (std::int64_t i = 0; i < n; ++i) w[i] -= step * lamb_direction(w[i], m[i], v[i], c);
}

}  // namespace hearth::kernels::HEARTH_ISA_NAMESPACE
#else
namespace hearth::kernels {

namespace {

/// Adds the pieces' partial sums to their ranges' in order; gives the roots.
std::vector<double> norms_of_ranges(const optim::UpdatePlan& plan, const std::vector<double>& partial) {
  std::vector<double> norms(plan.ranges().size(), 0.0);
  for (const auto& piece : plan.pieces()) norms[piece.range] += partial[piece.index];
  for (double& norm : norms) norm = std::sqrt(norm);
  return norms;
}

template <class T>
LambRange<T> lamb_range(const LambCoefficients& coefficients, const optim::ParameterRange& range) {
  const optim::SplitScale<T> scale(coefficients.grad_scale);
  return {.scale_1 = scale.first,
          .scale_2 = scale.second,
          .bound = sizeof(T) == 4 ? T(1e18) : T(1e150),
          .decay = static_cast<T>(range.weight_decay),
          .beta1 = static_cast<T>(coefficients.beta1),
          .rest1 = static_cast<T>(1.0 - coefficients.beta1),
          .beta2 = static_cast<T>(coefficients.beta2),
          .rest2 = static_cast<T>(1.0 - coefficients.beta2),
          .inverse1 = static_cast<T>(1.0 / coefficients.correction1),
          .inverse_root2 = static_cast<T>(1.0 / std::sqrt(coefficients.correction2)),
          .eps = static_cast<T>(coefficients.eps)};
}

}  // namespace

RangeNorms range_norms(cpu::Stream&, const Tensor& values, const Tensor& grads, const optim::UpdatePlan& plan,
                       double grad_scale) {
  std::vector<double> of_values(plan.piece_count()), of_grads(plan.piece_count());
  visit_dtype("range_norms", values.dtype(), WideFloats{}, [&]<class T>() {
    const T* w = values.data<T>();
    const T* g = grads.data<T>();
    plan.for_each_piece([&](const optim::UpdatePlan::Piece& piece) {
      const std::int64_t n = piece.end - piece.begin;
      of_values[piece.index] = sum_of_squares(w + piece.begin, n, 1.0);
      of_grads[piece.index] = sum_of_squares(g + piece.begin, n, grad_scale);
    });
  });
  return {norms_of_ranges(plan, of_values), norms_of_ranges(plan, of_grads)};
}

void lamb_update(cpu::Stream&, const Tensor& values, const Tensor& grads, const Tensor& first, const Tensor& second,
                 const optim::UpdatePlan& plan, const LambCoefficients& coefficients) {
  visit_dtype("lamb", values.dtype(), WideFloats{}, [&]<class T>() {
    T* w = values.data<T>();
    const T* g = grads.data<T>();
    T* m = first.data<T>();
    T* v = second.data<T>();
    std::vector<double> of_values(plan.piece_count()), of_steps(plan.piece_count());
    plan.for_each_piece([&](const optim::UpdatePlan::Piece& piece) {
      const std::int64_t begin = piece.begin, n = piece.end - piece.begin;
      std::vector<T> direction(static_cast<std::size_t>(n));
      HEARTH_ISA_CALL(lamb_moments<T>, w + begin, g + begin, m + begin, v + begin, direction.data(), n,
                      lamb_range<T>(coefficients, plan.ranges()[piece.range]));
      of_values[piece.index] = sum_of_squares(w + begin, n, 1.0);
      of_steps[piece.index] = sum_of_squares(direction.data(), n, 1.0);
    });
    const std::vector<double> value_norms = norms_of_ranges(plan, of_values);
    const std::vector<double> step_norms = norms_of_ranges(plan, of_steps);
    plan.for_each_piece([&](const optim::UpdatePlan::Piece& piece) {
      const optim::ParameterRange& range = plan.ranges()[piece.range];
      const double value_norm = value_norms[piece.range], step_norm = step_norms[piece.range];
      const bool adapts = range.is_matrix && value_norm > 0 && step_norm > 0;
      const double step = coefficients.lr * range.lr_scale * (adapts ? value_norm / step_norm : 1.0);
      HEARTH_ISA_CALL(lamb_apply<T>, w + piece.begin, m + piece.begin, v + piece.begin, piece.end - piece.begin,
                      static_cast<T>(step), lamb_range<T>(coefficients, range));
    });
  });
}

}  // namespace hearth::kernels
#endif
