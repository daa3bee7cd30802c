// SPDX-License-Identifier: Apache-2.0
// Norms of each parameter and the LAMB update. Each piece has its own partial sums, which are added in order.
// Traffic of LAMB: reads w, g, m, v and writes m, v; then reads w, m, v and writes w and the copies.
#include <algorithm>
#include <vector>

#include "optim/clip.h"
#include "optim/step.h"

namespace hearth {}

#define HEARTH_ISA_SOURCE "optim/layerwise_cpu.cpp"
#include "core/cpu/foreach_isa.h"

#ifdef HEARTH_ISA_NAMESPACE
namespace hearth::kernels::HEARTH_ISA_NAMESPACE {

/// Updates the moments; `u` [n] receives the direction.
template <class T>
void lamb_moments_run(const T* w, const T* g, T* m, T* v, T* u, std::int64_t n, const LambRange<T>& range) {
  const LambRange<T> c = range;
#pragma omp simd
  for (std::int64_t i = 0; i < n; ++i) {
    const AdamState<T> next = lamb_moments(AdamState<T>{w[i], m[i], v[i]}, g[i], c);
    m[i] = next.m;
    v[i] = next.v;
    u[i] = lamb_direction(w[i], next.m, next.v, c);
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

/// Adds the pieces' partial sums, where other ranks have some too, to their ranges' in order; gives the roots.
std::vector<double> norms_of_ranges(const UpdateBuffers& on, std::vector<double>& partial) {
  const optim::UpdatePlan& plan = on.plan;
  if (on.group != nullptr) {
    // One rank's number and zeros: the sum is exact.
    const Tensor sums = Tensor::of<double>({static_cast<std::int64_t>(partial.size())}, partial);
    on.group->all_reduce(sums).wait();
    std::copy_n(sums.data<const double>(), partial.size(), partial.begin());
  }
  std::vector<double> norms(plan.ranges().size(), 0.0);
  for (const auto& piece : plan.pieces()) norms[piece.range] += partial[piece.index];
  for (double& norm : norms) norm = std::sqrt(norm);
  return norms;
}

void keep_ratios(const Tensor& to, const std::vector<double>& ratios) {
  std::copy(ratios.begin(), ratios.end(), to.data<double>());
}

}  // namespace

void lars_update(cpu::Stream& stream, const UpdateBuffers& on, const Tensor& moment,
                 const Staged<SgdCoefficients>& coefficients, const LarsConstants& constants, const Tensor& ratios) {
  std::vector<double> of_values(on.plan.piece_count()), of_grads(on.plan.piece_count());
  visit_dtype("lars", on.values.dtype(), FullFloats{}, [&]<class T>() {
    const T* w = on.values.data<T>();
    const T* g = on.grads.data<T>();
    on.plan.for_each_piece([&](const optim::UpdatePlan::Piece& piece) {
      const std::int64_t n = piece.end - piece.begin;
      of_values[piece.index] = sum_of_squares(w + piece.begin, n, 1.0);
      of_grads[piece.index] = sum_of_squares(g + piece.begin, n, coefficients.value().grad_scale);
    });
  });
  const std::vector<double> value_norms = norms_of_ranges(on, of_values);
  const std::vector<double> grad_norms = norms_of_ranges(on, of_grads);
  std::vector<double> trust;
  for (std::size_t i = 0; i < value_norms.size(); ++i) {
    const optim::ParameterRange& range = on.plan.ranges()[i];
    trust.push_back(lars_trust_of(constants, coefficients.value().lr * range.lr_scale, range.weight_decay, range.adapts,
                                  value_norms[i], grad_norms[i]));
  }
  keep_ratios(ratios, coefficients.value().skip ? std::vector<double>(trust.size(), optim::no_ratio) : trust);
  sgd_update(stream, on, moment, coefficients, trust);
}

void lamb_update(cpu::Stream&, const UpdateBuffers& on, const Tensor& first, const Tensor& second,
                 const Staged<LambCoefficients>& staged, const Tensor& ratios, const Tensor& squares) {
  const LambCoefficients& coefficients = staged.value();
  keep_ratios(ratios, std::vector<double>(on.plan.ranges().size(), optim::no_ratio));
  if (coefficients.skip) return;
  const double grad_scale = lamb_grad_scale(coefficients, squares.defined() ? squares.data<double>() : nullptr);
  visit_dtype("lamb", on.values.dtype(), FullFloats{}, [&]<class T>() {
    T* w = on.values.data<T>();
    const T* g = on.grads.data<T>();
    T* m = first.data<T>();
    T* v = second.data<T>();
    std::vector<double> of_values(on.plan.piece_count()), of_steps(on.plan.piece_count());
    on.plan.for_each_piece([&](const optim::UpdatePlan::Piece& piece) {
      const std::int64_t begin = piece.begin, n = piece.end - piece.begin;
      std::vector<T> direction(static_cast<std::size_t>(n));
      HEARTH_ISA_CALL(lamb_moments_run<T>, w + begin, g + begin, m + begin, v + begin, direction.data(), n,
                      lamb_range<T>(coefficients, on.plan.ranges()[piece.range].weight_decay, grad_scale));
      of_values[piece.index] = sum_of_squares(w + begin, n, 1.0);
      of_steps[piece.index] = sum_of_squares(direction.data(), n, 1.0);
    });
    const std::vector<double> value_norms = norms_of_ranges(on, of_values);
    const std::vector<double> step_norms = norms_of_ranges(on, of_steps);
    std::vector<double> ratio;
    for (std::size_t i = 0; i < value_norms.size(); ++i)
      ratio.push_back(lamb_ratio(coefficients, on.plan.ranges()[i].adapts, value_norms[i], step_norms[i]));
    keep_ratios(ratios, ratio);
    on.plan.for_each_piece([&](const optim::UpdatePlan::Piece& piece) {
      const optim::ParameterRange& range = on.plan.ranges()[piece.range];
      const double step = coefficients.lr * range.lr_scale * ratio[piece.range];
      HEARTH_ISA_CALL(lamb_apply<T>, w + piece.begin, m + piece.begin, v + piece.begin, piece.end - piece.begin,
                      static_cast<T>(step), lamb_range<T>(coefficients, range.weight_decay, grad_scale));
      copy_piece(on.values, on.copies, piece.begin, piece.end);
    });
  });
}

}  // namespace hearth::kernels
#endif
