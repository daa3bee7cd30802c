// SPDX-License-Identifier: Apache-2.0
// The layers that drop.
#include "models/nn/dropout.h"

#include "ops/ops.h"

namespace hearth::nn {

Dropout::Dropout(double p, const DropoutOptions& options) : p_(p), options_(options) {
  HEARTH_CHECK(UsageError, p >= 0 && p < 1, "dropout layer: probability ", p, " is outside [0, 1)");
}

Tensor Dropout::forward(const Tensor& x) { return rate() == 0 ? x : dropout(x, p_, true, options_); }

DropPath::DropPath(double p) : p_(p) {
  HEARTH_CHECK(UsageError, p >= 0 && p < 1, "drop path layer: probability ", p, " is outside [0, 1)");
}

Tensor DropPath::forward(const Tensor& x) { return drop_path(x, p_, is_training()); }
Tensor DropPath::add_to(const Tensor& residual, const Tensor& x) {
  return add_drop_path(residual, x, p_, is_training());
}

}  // namespace hearth::nn
