// SPDX-License-Identifier: Apache-2.0
// The pooling layer.
#pragma once

#include "models/nn/module.h"

namespace hearth::nn {

/// Largest value of each kernel x kernel window: x [N, H, W, C], y [N, P, Q, C].
class HEARTH_API MaxPool2d : public Module {
 public:
  MaxPool2d(std::int64_t kernel, std::int64_t stride, std::int64_t padding = 0)
      : kernel_(kernel), stride_(stride), padding_(padding) {}
  Tensor forward(const Tensor& x) override;

 private:
  std::int64_t kernel_;
  std::int64_t stride_;
  std::int64_t padding_;
};

}  // namespace hearth::nn
