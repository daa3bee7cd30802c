// SPDX-License-Identifier: Apache-2.0
// The fully connected layer.
#pragma once

#include "models/nn/module.h"
#include "ops/activation.h"

namespace hearth::nn {

struct HEARTH_API LinearOptions {
  bool bias = true;
  Activation activation = Activation::none;  ///< applied within the same kernel
  Init weight_init = init::kaiming_uniform();
  /// Default: uniform within 1 / sqrt(inputs).
  Init bias_init = {};
};

/// y = act(x w^T + b); x [..., inputs], weight [outputs, inputs], bias [outputs], y [..., outputs].
class HEARTH_API Linear : public Module {
 public:
  /// ShapeError unless inputs and outputs are at least 1.
  Linear(std::int64_t inputs, std::int64_t outputs, const LinearOptions& options = {});
  Tensor forward(const Tensor& x) override;

  Tensor weight;
  Tensor bias;

 private:
  friend Tensor feed_forward(Linear& first, Linear& second, const Tensor& x);
  Activation activation_;
};

/// second(first(x)). On a CUDA device one op, mlp(), unless an observer or a hook is to see the layers apart.
HEARTH_API Tensor feed_forward(Linear& first, Linear& second, const Tensor& x);

}  // namespace hearth::nn
