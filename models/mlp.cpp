// SPDX-License-Identifier: Apache-2.0
// The multilayer perceptron.
#include "models/mlp.h"

#include "ops/ops.h"

namespace hearth::models {

Mlp::Mlp(const MlpOptions& options) : in_features_(options.in_features), dropout_(options.dropout) {
  std::int64_t width = options.in_features;
  for (const std::int64_t next : options.hidden) {
    layers_.add<nn::Linear>(width, next, nn::LinearOptions{.activation = options.activation});
    width = next;
  }
  layers_.add<nn::Linear>(width, options.classes);
  register_module("layers", layers_);
  register_module("dropout", dropout_);
}

Tensor Mlp::forward(const Tensor& x) { return outputs_of(embedding(x)); }

Tensor Mlp::embedding(const Tensor& x) {
  HEARTH_CHECK(ShapeError, x.rank() >= 2 && (x.dim(0) == 0 || x.size() / x.dim(0) == in_features_), "mlp: x ",
               describe(x), " does not hold ", in_features_, " features a sample");
  Tensor y = x.rank() == 2 ? x : flatten(x, 1);
  for (std::size_t i = 0; i + 1 < layers_.size(); ++i) y = dropout_(layers_[i](y));
  return y;
}

Tensor Mlp::outputs_of(const Tensor& embedding) { return layers_[layers_.size() - 1](embedding); }

}  // namespace hearth::models
