// SPDX-License-Identifier: Apache-2.0
#include "ops/loss/elementwise_blocks.h"

#include "ops/loss/elementwise_visit.h"

namespace hearth {}

#define HEARTH_ISA_SOURCE "ops/loss/elementwise_blocks.cpp"
#include "core/cpu/foreach_isa.h"

#ifdef HEARTH_ISA_NAMESPACE
namespace hearth::kernels::HEARTH_ISA_NAMESPACE {

template <class F, class A>
void losses(const A* x, const A* target, const A* pos_weight, A a, A b, A* out, std::int64_t n) {
#pragma omp simd
  for (std::int64_t i = 0; i < n; ++i) out[i] = F::value(x[i], target[i], pos_weight[i], a, b);
}

template <class F, class A>
void loss_slopes(const A* x, const A* target, const A* pos_weight, A a, A b, A* out, std::int64_t n) {
#pragma omp simd
  for (std::int64_t i = 0; i < n; ++i) out[i] = F::slope(x[i], target[i], pos_weight[i], a, b);
}

template <class A>
LossBlock<A> losses_of(ElementLoss loss, bool slope) {
  LossBlock<A> block = nullptr;
  visit_loss(loss, [&]<class F>(F, const char*, const char*) { block = slope ? loss_slopes<F, A> : losses<F, A>; });
  return block;
}

template <class A>
void add_lanes(LossSum& sum, const A* losses, const A* target, const A* weight, A ignored, std::int64_t n) {
  for (std::int64_t i = 0; i < n; i += LossSum::lanes) {
    const std::int64_t count = n - i < LossSum::lanes ? n - i : LossSum::lanes;
#pragma omp simd
    for (std::int64_t l = 0; l < count; ++l) {
      const bool counts = target[i + l] != ignored;
      const double loss = static_cast<double>(losses[i + l]);
      const double weighted = weight == nullptr ? loss : loss * static_cast<double>(weight[i + l]);
      sum.sums[l] += counts ? weighted : 0.0;
      sum.counts[l] += counts ? 1.0 : 0.0;
    }
  }
}

template <class A>
void scale(A* slopes, const A* target, const A* weight, const A* dy, A factor, A ignored, std::int64_t n) {
#pragma omp simd
  for (std::int64_t i = 0; i < n; ++i) {
    const A weighted = weight == nullptr ? slopes[i] : slopes[i] * weight[i];
    const A arriving = dy == nullptr ? factor : dy[i] * factor;
    slopes[i] = target[i] == ignored ? A(0) : weighted * arriving;
  }
}

}  // namespace hearth::kernels::HEARTH_ISA_NAMESPACE
#else
namespace hearth::kernels {
namespace {

double sum_of(const double (&lanes)[LossSum::lanes]) {
  double sum = 0;
  for (const double lane : lanes) sum += lane;
  return sum;
}

}  // namespace

double LossSum::sum() const { return sum_of(sums); }
double LossSum::count() const { return sum_of(counts); }

#define HEARTH_LOSS_BLOCKS(A, CALL)                                                                                  \
  template <>                                                                                                        \
  LossBlock<A> loss_block(ElementLoss loss) {                                                                        \
    return CALL(losses_of<A>, loss, false);                                                                          \
  }                                                                                                                  \
  template <>                                                                                                        \
  LossBlock<A> loss_slope_block(ElementLoss loss) {                                                                  \
    return CALL(losses_of<A>, loss, true);                                                                           \
  }                                                                                                                  \
  template <>                                                                                                        \
  void add_losses(LossSum& sum, const A* losses, const A* target, const A* weight, A ignored, std::int64_t n) {      \
    CALL(add_lanes, sum, losses, target, weight, ignored, n);                                                        \
  }                                                                                                                  \
  template <>                                                                                                        \
  void scale_slopes(A* slopes, const A* target, const A* weight, const A* dy, A factor, A ignored, std::int64_t n) { \
    CALL(scale, slopes, target, weight, dy, factor, ignored, n);                                                     \
  }
HEARTH_LOSS_BLOCKS(float, HEARTH_ISA_CALL)
HEARTH_LOSS_BLOCKS(double, HEARTH_ISA_CALL_UP_TO_V3)
#undef HEARTH_LOSS_BLOCKS

}  // namespace hearth::kernels
#endif
