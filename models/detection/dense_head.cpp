// SPDX-License-Identifier: Apache-2.0
#include "models/detection/dense_head.h"

#include <cmath>

#include "ops/ops.h"

namespace hearth::models {
namespace {

nn::Conv2dLayerOptions head_conv(double bias, Activation activation = Activation::none) {
  return {.padding = 1,
          .activation = activation,
          .weight_init = nn::init::normal(0.01),
          .bias_init = nn::init::constant(bias)};
}

}  // namespace

DenseHead::DenseHead(const DenseHeadOptions& options, const std::vector<Output>& outputs)
    : has_norms_(options.groups > 0) {
  const std::int64_t channels = options.channels;
  for (std::int64_t i = 0; i < options.convolutions; ++i) {
    if (has_norms_) {
      const std::int64_t index = 3 * i;  // the ReLU behind the norm has a number too
      convolutions_.add_named<nn::Conv2d>(std::to_string(index), channels, channels, head_conv(0));
      convolutions_.add_named<nn::GroupNorm>(std::to_string(index + 1), options.groups, channels);
    } else {
      convolutions_.add<ListedConv>(channels, channels, head_conv(0, Activation::relu));
    }
  }
  register_module("conv", convolutions_);
  for (const Output& output : outputs) {
    outputs_.push_back(std::make_unique<nn::Conv2d>(
        channels, checked_mul(output.anchors, output.numbers, "channels of a head"), head_conv(output.bias)));
    numbers_.push_back(output.numbers);
    register_module(output.name, *outputs_.back());
  }
}

std::vector<Tensor> DenseHead::outputs_of(const Tensor& map) {
  Tensor x = map;
  for (std::size_t i = 0; i < convolutions_.size(); ++i) {
    x = convolutions_[i](x);
    if (has_norms_ && i % 2 == 1) x = relu(x);
  }
  std::vector<Tensor> all;
  for (std::size_t i = 0; i < outputs_.size(); ++i) {
    const Tensor y = (*outputs_[i])(x);
    all.push_back(reshape(y, {y.dim(0), y.size() / y.dim(0) / numbers_[i], numbers_[i]}));
  }
  return all;
}

double rare_object_bias() { return -std::log((1 - 0.01) / 0.01); }

}  // namespace hearth::models
