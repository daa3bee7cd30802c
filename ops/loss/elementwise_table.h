// SPDX-License-Identifier: Apache-2.0
// The one list of losses that compare x and target element by element. A row makes the kernels for both devices; its
// arithmetic is the functor of the same name in elementwise_functors.h.
#pragma once

// clang-format off
#define HEARTH_ELEMENT_LOSSES(row) \
  row(mse)              /* (x - t)^2 */                                          \
  row(l1_loss)          /* |x - t| */                                            \
  row(smooth_l1_loss)   /* d^2 / (2 beta) for d = |x - t| < beta, else d - beta / 2 */  \
  row(huber_loss)       /* d^2 / 2 for d < delta, else delta (d - delta / 2) */  \
  row(bce_with_logits)  /* -(q t log s + (1 - t) log(1 - s)), s = sigmoid(x) */  \
  row(focal_loss)       /* a m^gamma bce, m = the probability of the wrong class */
// clang-format on

namespace hearth::kernels {

enum class ElementLoss {
#define HEARTH_LIST_LOSS(name) name,
  HEARTH_ELEMENT_LOSSES(HEARTH_LIST_LOSS)
#undef HEARTH_LIST_LOSS
};

}  // namespace hearth::kernels
