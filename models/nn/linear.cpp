// SPDX-License-Identifier: Apache-2.0
// The fully connected layer.
#include "models/nn/linear.h"

#include <cmath>

#include "ops/ops.h"

namespace hearth::nn {

Linear::Linear(std::int64_t inputs, std::int64_t outputs, const LinearOptions& options)
    : activation_(options.activation) {
  HEARTH_CHECK(ShapeError, inputs >= 1 && outputs >= 1, "linear layer: ", inputs, " inputs and ", outputs,
               " outputs; both are at least 1");
  weight = Tensor::zeros({outputs, inputs});
  parameter("weight", weight, options.weight_init);
  if (!options.bias) return;
  bias = Tensor::zeros({outputs});
  parameter("bias", bias,
            options.bias_init ? options.bias_init : init::uniform(1.0 / std::sqrt(static_cast<double>(inputs))));
}

Tensor Linear::forward(const Tensor& x) { return linear(x, weight, bias, activation_); }

Tensor feed_forward(Linear& first, Linear& second, const Tensor& x) {
  const bool apart = first.is_watched() || second.is_watched() || second.activation_ != Activation::none;
  if (apart || x.device().is_cpu()) return second(first(x));
  return mlp(x, first.weight, first.bias, second.weight, second.bias, first.activation_);
}

}  // namespace hearth::nn
