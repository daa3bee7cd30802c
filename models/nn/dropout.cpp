// SPDX-License-Identifier: Apache-2.0
// The dropout layer.
#include "hearth/models/nn/dropout.h"

#include "hearth/ops/ops.h"

namespace hearth::nn {

Dropout::Dropout(double p) : p_(p) {
  HEARTH_CHECK(UsageError, p >= 0 && p < 1, "dropout layer: probability ", p, " is outside [0, 1)");
}

Tensor Dropout::forward(const Tensor& x) { return rate() == 0 ? x : dropout(x, p_, true); }

}  // namespace hearth::nn
