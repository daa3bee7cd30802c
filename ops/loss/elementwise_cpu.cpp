// SPDX-License-Identifier: Apache-2.0
// One pass over x and target. Losses are computed in f32 (f64 for f64) and summed in f64, piece by piece in order.
// Reference:
//   for i: if target[i] == ignored: continue
//     sum += weight[i % periodw] * value(x[i], target[i], pos_weight[i % periodp]);  ++count
//   result = mean ? sum / count : sum
#include <algorithm>

#include "core/cpu/element.h"
#include "core/cpu/parallel.h"
#include "ops/loss/elementwise_visit.h"
#include "ops/scratch.h"

namespace hearth {}

#define HEARTH_ISA_SOURCE "ops/loss/elementwise_cpu.cpp"
#include "core/cpu/foreach_isa.h"

#ifdef HEARTH_ISA_NAMESPACE
namespace hearth::kernels::HEARTH_ISA_NAMESPACE {

template <class F, class T>
void sum_of_run(const ElementLossData<T, acc_t<T>>& in, std::int64_t begin, std::int64_t end, double* sum_out,
                double* count_out) {
  double sum = 0, count = 0;
  // Without weights there is no index arithmetic, and the loop vectorises.
  if (in.weight == nullptr && in.pos_weight == nullptr) {
#pragma omp simd reduction(+ : sum, count)
    for (std::int64_t i = begin; i < end; ++i) {
      const acc_t<T> t = cpu::load(in.target + i);
      const acc_t<T> value = F::value(cpu::load(in.x + i), t, acc_t<T>(1), in.a, in.b);
      const bool counts = t != in.ignored;
      sum += counts ? static_cast<double>(value) : 0.0;
      count += counts ? 1.0 : 0.0;
    }
  } else {
    for (std::int64_t i = begin; i < end; ++i) {
      const acc_t<T> t = cpu::load(in.target + i);
      if (t == in.ignored) continue;
      const acc_t<T> value = F::value(cpu::load(in.x + i), t, in.pos_weight_at(i), in.a, in.b);
      sum += static_cast<double>(value) * static_cast<double>(in.weight_at(i));
      count += 1;
    }
  }
  *sum_out = sum;
  *count_out = count;
}

template <class F, class T>
void losses_of_run(const ElementLossData<T, acc_t<T>>& in, acc_t<T>* losses, std::int64_t begin, std::int64_t end) {
  for (std::int64_t i = begin; i < end; ++i) {
    const acc_t<T> t = cpu::load(in.target + i);
    const acc_t<T> value = F::value(cpu::load(in.x + i), t, in.pos_weight_at(i), in.a, in.b);
    losses[i] = t == in.ignored ? acc_t<T>(0) : value * in.weight_at(i);
  }
}

template <class F, class T>
void slopes_of_run(const ElementLossData<T, acc_t<T>>& in, acc_t<T> factor, const acc_t<T>* dy, T* dx,
                   std::int64_t begin, std::int64_t end) {
  if (in.weight == nullptr && in.pos_weight == nullptr && dy == nullptr) {
#pragma omp simd
    for (std::int64_t i = begin; i < end; ++i) {
      const acc_t<T> t = cpu::load(in.target + i);
      const acc_t<T> slope = F::slope(cpu::load(in.x + i), t, acc_t<T>(1), in.a, in.b) * factor;
      cpu::store(dx + i, t == in.ignored ? acc_t<T>(0) : slope);
    }
    return;
  }
  for (std::int64_t i = begin; i < end; ++i) {
    const acc_t<T> t = cpu::load(in.target + i);
    const acc_t<T> slope = F::slope(cpu::load(in.x + i), t, in.pos_weight_at(i), in.a, in.b) * in.weight_at(i);
    const acc_t<T> arriving = dy == nullptr ? factor : dy[i] * factor;
    cpu::store(dx + i, t == in.ignored ? acc_t<T>(0) : slope * arriving);
  }
}

}  // namespace hearth::kernels::HEARTH_ISA_NAMESPACE
#else
namespace hearth::kernels {
namespace {

constexpr std::int64_t grain = 1 << 15;

}  // namespace

void element_losses(cpu::Stream&, ElementLoss loss, const ElementLossInputs& in, const Tensor& losses) {
  visit_dtype("loss", in.x.dtype(), Floats{}, [&]<class T>() {
    const ElementLossData<T, acc_t<T>> data(in);
    acc_t<T>* const to = losses.data<acc_t<T>>();
    visit_loss(loss, [&]<class F>(F, const char*, const char*) {
      cpu::parallel_for(in.x.size(), grain, [&](std::int64_t begin, std::int64_t end) {
        HEARTH_ISA_CALL(losses_of_run<F>, data, to, begin, end);
      });
    });
  });
}

void element_loss_total(cpu::Stream&, ElementLoss loss, const ElementLossInputs& in, bool mean, const Tensor& result,
                        const Tensor& scale) {
  const std::int64_t n = in.x.size(), pieces = (n + grain - 1) / grain;
  cpu::Scratch scratch;
  double* const sums = scratch.take<double>(pieces);
  double* const counts = scratch.take<double>(pieces);
  visit_dtype("loss", in.x.dtype(), Floats{}, [&]<class T>() {
    const ElementLossData<T, acc_t<T>> data(in);
    visit_loss(loss, [&]<class F>(F, const char*, const char*) {
      cpu::parallel_chunks(pieces, [&](std::int64_t i) {
        HEARTH_ISA_CALL(sum_of_run<F>, data, i * grain, std::min((i + 1) * grain, n), sums + i, counts + i);
      });
    });
    double sum = 0, count = 0;
    for (std::int64_t i = 0; i < pieces; ++i) sum += sums[i], count += counts[i];
    const double factor = !mean ? 1.0 : (count > 0 ? 1.0 / count : 0.0);
    *scale.data<double>() = factor;
    *result.data<acc_t<T>>() = static_cast<acc_t<T>>(mean ? (count > 0 ? sum / count : 0.0) : sum);
  });
}

void element_loss_grad(cpu::Stream&, ElementLoss loss, const ElementLossInputs& in, double factor, const Tensor& scale,
                       const Tensor& dy, const Tensor& dx) {
  const bool each = dy.size() != 1 || in.x.size() == 1;
  visit_dtype("loss", in.x.dtype(), Floats{}, [&]<class T>() {
    const ElementLossData<T, acc_t<T>> data(in);
    const acc_t<T>* const arriving = dy.data<acc_t<T>>();
    const double scaled = factor * (scale.defined() ? *scale.data<double>() : 1.0);
    const auto whole = static_cast<acc_t<T>>(each ? scaled : scaled * static_cast<double>(*arriving));
    T* const out = dx.data<T>();
    visit_loss(loss, [&]<class F>(F, const char*, const char*) {
      cpu::parallel_for(in.x.size(), grain, [&](std::int64_t begin, std::int64_t end) {
        HEARTH_ISA_CALL(slopes_of_run<F>, data, whole, each ? arriving : nullptr, out, begin, end);
      });
    });
  });
}

}  // namespace hearth::kernels
#endif
