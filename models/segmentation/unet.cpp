// SPDX-License-Identifier: Apache-2.0
#include "models/segmentation/unet.h"

#include <vector>

#include "ops/ops.h"

namespace hearth::models {
namespace {

constexpr std::int64_t most_unet_levels = 10;

/// Two 3x3 convolutions, each with a norm and a ReLU.
class DoubleConv : public nn::ModuleList {
 public:
  DoubleConv(std::int64_t in_channels, std::int64_t channels) {
    for (const std::int64_t from : {in_channels, channels})
      add<nn::ConvNorm>(
          from, channels,
          nn::Conv2dLayerOptions{
              .kernel = 3, .padding = 1, .bias = false, .weight_init = nn::init::kaiming_normal_fan_out()},
          nn::BatchNormLayerOptions{.activation = Activation::relu});
  }
};

const UnetOptions& checked_unet(const UnetOptions& options) {
  HEARTH_CHECK(ShapeError,
               options.in_channels >= 1 && options.classes >= 1 && options.width >= 1 && options.levels >= 1 &&
                   options.levels <= most_unet_levels,
               "unet: ", options.in_channels, " channels, ", options.classes, " classes, a width of ", options.width,
               " and ", options.levels, " levels; all are 1 at least, and levels ", most_unet_levels, " at most");
  return options;
}

}  // namespace

Unet::Unet(const UnetOptions& options)
    : head_(checked_unet(options).width, options.classes, nn::Conv2dLayerOptions{.kernel = 1}) {
  std::int64_t in_channels = options.in_channels, channels = options.width;
  for (std::int64_t level = 0; level < options.levels; ++level) {
    if (level > 0) channels = checked_mul(channels, 2, "unet width");
    encoder_.add<DoubleConv>(in_channels, channels);
    in_channels = channels;
  }
  for (std::int64_t level = 1; level < options.levels; ++level) {
    up_.add<nn::ConvTranspose2d>(channels, channels / 2, nn::ConvTranspose2dLayerOptions{.kernel = 2, .stride = 2});
    decoder_.add<DoubleConv>(channels, channels / 2);
    channels /= 2;
  }
  register_module("encoder", encoder_);
  register_module("up", up_);
  register_module("decoder", decoder_);
  register_module("head", head_);
}

Tensor Unet::forward(const Tensor& x) {
  const std::int64_t least = std::int64_t{1} << (encoder_.size() - 1);
  HEARTH_CHECK(ShapeError, x.rank() == 4 && x.dim(1) >= least && x.dim(2) >= least, "unet: x ", describe(x), " for ",
               encoder_.size(), " levels, which halve rows and columns; wanted is [N, H, W, C] with ", least,
               " of each at least, or fewer levels");
  std::vector<Tensor> maps;
  for (std::size_t level = 0; level < encoder_.size(); ++level)
    maps.push_back(encoder_[level](level == 0 ? x : max_pool2d(maps.back(), {.kernel = 2, .stride = 2})));
  Tensor y = maps.back();
  for (std::size_t i = 0; i < up_.size(); ++i) {
    const Tensor& beside = maps[maps.size() - 2 - i];
    const Tensor up = up_[i](y);
    y = decoder_[i](
        concat({beside, pad(up, {{}, {0, beside.dim(1) - up.dim(1)}, {0, beside.dim(2) - up.dim(2)}, {}})}, -1));
  }
  return head_(y);
}

}  // namespace hearth::models
