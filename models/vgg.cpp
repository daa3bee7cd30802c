// SPDX-License-Identifier: Apache-2.0
// VGG models. A convolution without norm applies its ReLU itself; indices of layers that have no module of their own
// here (ReLU) are left out, so that the names match.
#include "models/vgg.h"

#include <array>
#include <string>

#include "ops/ops.h"

namespace hearth::models {

namespace {

/// Convolutions of each of the five stages.
std::array<int, 5> plan_of(int depth) {
  switch (depth) {
    case 11:
      return {1, 1, 2, 2, 2};
    case 13:
      return {2, 2, 2, 2, 2};
    case 16:
      return {2, 2, 3, 3, 3};
    case 19:
      return {2, 2, 4, 4, 4};
    default:
      break;
  }
  throw ConfigError(join_text("vgg: there is no depth ", depth, "; choose 11, 13, 16 or 19"));
}

constexpr std::int64_t pooled_side = 7;

/// x [N, H, W, C] to [N, C * 49] in the order channel, row, column, in which torchvision's classifier reads.
Tensor pooled_features(const Tensor& x) {
  const std::int64_t h = x.dim(1), w = x.dim(2);
  const std::int64_t side = pooled_side;
  HEARTH_CHECK(ShapeError, (h == 1 && w == 1) || (h % side == 0 && w % side == 0), "vgg: features ", describe(x),
               " cannot be pooled to 7x7; use images whose sides are multiples of 224 or within 32 to 63, or the head "
               "\"small\"");
  Tensor y = x;
  if (h == 1 && w == 1) {
    y = expand(x, {x.dim(0), side, side, x.dim(3)});
  } else if (h != side || w != side) {
    HEARTH_CHECK(ShapeError, h == w, "vgg: features ", describe(x), " are not square; use square images");
    y = avg_pool2d(x, {.kernel = h / side, .stride = h / side});
  }
  return flatten(transpose(y, {0, 3, 1, 2}), 1);
}

}  // namespace

Vgg::Vgg(const VggOptions& options) : head_(options.head) {
  const std::array<int, 5> plan = plan_of(options.depth);
  std::int64_t channels = options.in_channels;
  std::int64_t width = options.width;
  int index = 0;
  for (std::size_t stage = 0; stage < plan.size(); ++stage) {
    if (stage > 0 && stage < 4) width = checked_mul(width, 2, "vgg width");
    nn::ModuleList& layers = features_.add_unnamed<nn::ModuleList>();
    for (int i = 0; i < plan[stage]; ++i) {
      const nn::Conv2dLayerOptions convolution{.kernel = 3,
                                               .padding = 1,
                                               .activation = options.batch_norm ? Activation::none : Activation::relu,
                                               .weight_init = nn::init::kaiming_normal_fan_out(),
                                               .bias_init = nn::init::zeros()};
      if (options.batch_norm)
        layers.add_unnamed<nn::ConvNorm>(channels, width, convolution,
                                         nn::BatchNormLayerOptions{.activation = Activation::relu},
                                         nn::ConvNormNames{std::to_string(index), std::to_string(index + 1)});
      else
        layers.add_named<nn::Conv2d>(std::to_string(index), channels, width, convolution);
      channels = width;
      index += options.batch_norm ? 3 : 2;
    }
    layers.add_named<nn::MaxPool2d>(std::to_string(index++), std::int64_t{2}, std::int64_t{2});
  }
  features_.recompute(options.recompute);
  const auto linear = [](Activation activation) {
    return nn::LinearOptions{
        .activation = activation, .weight_init = nn::init::normal(0.01), .bias_init = nn::init::zeros()};
  };
  if (head_ == VggHead::imagenet) {
    const std::int64_t hidden = options.head_width;
    const std::int64_t inputs = checked_mul(channels, pooled_side * pooled_side, "vgg features");
    classifier_.add_named<nn::Linear>("0", inputs, hidden, linear(Activation::relu));
    classifier_.add_named<nn::Dropout>("2", options.dropout);
    classifier_.add_named<nn::Linear>("3", hidden, hidden, linear(Activation::relu));
    classifier_.add_named<nn::Dropout>("5", options.dropout);
    classifier_.add_named<nn::Linear>("6", hidden, options.classes, linear(Activation::none));
  } else {
    classifier_.add_named<nn::Linear>("0", channels, options.classes, linear(Activation::none));
  }
  register_module("features", features_);
  register_module("classifier", classifier_);
}

Tensor Vgg::forward(const Tensor& x) { return outputs_of(embedding(x)); }

Tensor Vgg::embedding(const Tensor& x) {
  HEARTH_CHECK(ShapeError, x.rank() == 4 && x.dim(1) >= 32 && x.dim(2) >= 32, "vgg: x ", describe(x),
               " is not [N, H, W, C] with sides of at least 32 pixels; five poolings halve them");
  const Tensor y = features_(x);
  const Tensor pooled = head_ == VggHead::imagenet ? pooled_features(y) : global_avg_pool(y);
  return classifier_.run(pooled, 0, classifier_.size() - 1);
}

Tensor Vgg::outputs_of(const Tensor& embedding) { return classifier_[classifier_.size() - 1](embedding); }

}  // namespace hearth::models
