// SPDX-License-Identifier: Apache-2.0
#include "ops/loss/multibox.h"

#include <cmath>

#include "ops/argument.h"
#include "ops/index/sort.h"
#include "ops/loss/cross_entropy.h"
#include "ops/pointwise/compare.h"
#include "ops/pointwise/operators.h"
#include "ops/reduce/reduce.h"

namespace hearth {

Tensor multibox_loss(const Tensor& logits, const Tensor& labels, double ratio) {
  const char* const op = "multibox_loss";
  require_floating(op, "logits", logits);
  require_index_type(op, "labels", labels);
  HEARTH_CHECK(
      ShapeError,
      logits.rank() == 3 && labels.rank() == 2 && labels.dim(0) == logits.dim(0) && labels.dim(1) == logits.dim(1), op,
      ": logits ", logits.shape(), " and labels ", labels.shape(), "; they are [N, P, C] and [N, P]");
  HEARTH_CHECK(DeviceError, labels.device() == logits.device(), op, ": labels are on ", name_of(labels.device()),
               " but logits on ", name_of(logits.device()), "; move one with to(device)");
  HEARTH_CHECK(UsageError, ratio >= 0 && std::isfinite(ratio), op, ": ratio ", ratio,
               "; it must be finite and at least 0");
  const Tensor losses = cross_entropy(logits, labels, {.ignore_index = -1, .reduction = Reduction::none});
  const Tensor is_object = greater(labels, 0.0), is_background = equal(labels, 0.0);
  // Cross entropies are at least 0, so that all others come behind. The position in that order is the order of the
  // order.
  const Tensor hardness = where(is_background, losses.detach(), -1.0);
  const Tensor position = argsort(argsort(hardness, -1, true), -1).to(DType::f64);
  const Tensor wanted = sum(is_object.to(DType::f64), 1, true) * ratio;
  const Tensor counts = logical_or(is_object, logical_and(is_background, less(position, wanted)));
  return sum(where(counts, losses, 0.0));
}

}  // namespace hearth
