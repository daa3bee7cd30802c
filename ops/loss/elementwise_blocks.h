// SPDX-License-Identifier: Apache-2.0
// The elementwise losses on the CPU, for blocks of elements on the calling thread. A is float or double.
#pragma once

#include <cstdint>

#include "ops/loss/elementwise_table.h"

namespace hearth::kernels {

/// out[i] = the loss of x[i] and target[i], or its slope, for n elements. pos_weight [n]; a and b are the loss's
/// numbers.
template <class A>
using LossBlock = void (*)(const A* x, const A* target, const A* pos_weight, A a, A b, A* out, std::int64_t n);

/// The loss's block for the ISA level in use.
template <class A>
LossBlock<A> loss_block(ElementLoss loss);
template <class A>
LossBlock<A> loss_slope_block(ElementLoss loss);

/// Sums in f64 that blocks are added to, in lanes, so that the order does not depend on the ISA level.
struct LossSum {
  static constexpr std::int64_t lanes = 8;
  double sums[lanes] = {}, counts[lanes] = {};

  double sum() const;
  double count() const;
};
/// Adds the losses of n elements, times `weight` unless that is null, but not where the target is `ignored`. n is a
/// multiple of the lanes in every block but the last.
template <class A>
void add_losses(LossSum& sum, const A* losses, const A* target, const A* weight, A ignored, std::int64_t n);

/// slopes[i] *= weight[i] dy[i] factor for n elements, weight and dy being 1 where they are null; 0 where the target is
/// `ignored`.
template <class A>
void scale_slopes(A* slopes, const A* target, const A* weight, const A* dy, A factor, A ignored, std::int64_t n);

}  // namespace hearth::kernels
