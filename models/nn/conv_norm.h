// SPDX-License-Identifier: Apache-2.0
// A convolution and the batch normalisation behind it as one layer.
#pragma once

#include <string>

#include "models/nn/conv.h"
#include "models/nn/norm.h"
#include "ops/pool/pool.h"

namespace hearth::nn {

/// What the two parts are called, in parameter names too: "conv.weight", "norm.running_mean".
struct ConvNormNames {
  std::string convolution = "conv";
  std::string norm = "norm";
};

/// y = act(norm(convolution(x)) [+ residual]), the values of the two layers one after the other. It is quicker in
/// training on a CUDA device, where the norm takes the statistics of the batch from the convolution's kernel.
class HEARTH_API ConvNorm : public Module {
 public:
  /// ShapeError as the two layers.
  ConvNorm(std::int64_t in_channels, std::int64_t out_channels, const Conv2dLayerOptions& convolution_options,
           const BatchNormLayerOptions& norm_options = {}, const ConvNormNames& names = {});
  Tensor forward(const Tensor& x) override { return convolved_and_normalized(x, {}); }
  Tensor operator()(const Tensor& x) { return Module::operator()(x); }
  /// The residual [same shape as y] is added before the activation of the norm.
  Tensor operator()(const Tensor& x, const Tensor& residual);
  /// The residual is what `shortcut` makes of `from`, after the convolution: the other way round it would lie in memory
  /// while the convolution runs.
  Tensor operator()(const Tensor& x, Module& shortcut, const Tensor& from);

  /// max_pool2d of what the layers make of x. In training on a CUDA device norm, ReLU and pooling are one op, which
  /// never writes what the norm makes, as long as nobody wants to see that.
  Tensor pooled(const Tensor& x, const MaxPool2dOptions& pool);

  Conv2d convolution;
  BatchNorm norm;

 private:
  Tensor convolved_and_normalized(const Tensor& x, const Tensor& residual, Module* shortcut = nullptr);
  bool is_watched() const;
};

}  // namespace hearth::nn
