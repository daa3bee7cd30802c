// SPDX-License-Identifier: Apache-2.0
// The pooling layer.
#include "models/nn/pool.h"

#include "ops/ops.h"

namespace hearth::nn {

Tensor MaxPool2d::forward(const Tensor& x) {
  return max_pool2d(x, {.kernel = kernel_, .stride = stride_, .padding = padding_});
}

}  // namespace hearth::nn
