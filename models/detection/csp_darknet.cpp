// SPDX-License-Identifier: Apache-2.0
#include "models/detection/csp_darknet.h"

#include "ops/ops.h"

namespace hearth::models {
namespace {

class DepthwiseConv : public nn::Module {
 public:
  DepthwiseConv(std::int64_t in_channels, std::int64_t out_channels, std::int64_t stride)
      : of_channels_(in_channels, in_channels, 3, stride, in_channels), of_pixels_(in_channels, out_channels, 1) {
    register_module("dconv", of_channels_);
    register_module("pconv", of_pixels_);
  }
  Tensor forward(const Tensor& x) override { return of_pixels_(of_channels_(x)); }

 private:
  SiluConv of_channels_, of_pixels_;
};

class CspBottleneck : public nn::Module {
 public:
  CspBottleneck(std::int64_t channels, bool shortcut, bool depthwise)
      : conv1_(channels, channels, 1), conv2_(silu_conv(channels, channels, 1, depthwise)), shortcut_(shortcut) {
    register_module("conv1", conv1_);
    register_module("conv2", *conv2_);
  }
  Tensor forward(const Tensor& x) override {
    const Tensor y = (*conv2_)(conv1_(x));
    return shortcut_ ? y + x : y;
  }

 private:
  SiluConv conv1_;
  std::unique_ptr<nn::Module> conv2_;
  bool shortcut_;
};

/// The map beside the maxima around each pixel, of windows of three sizes.
class SpatialPyramid : public nn::Module {
 public:
  explicit SpatialPyramid(std::int64_t channels)
      : conv1_(channels, channels / 2, 1), conv2_(channels / 2 * 4, channels, 1) {
    register_module("conv1", conv1_);
    register_module("conv2", conv2_);
  }
  Tensor forward(const Tensor& x) override {
    // The maximum of 5 x 5 maxima of 5 x 5 windows is that of 9 x 9, and once more that of 13 x 13.
    std::vector<Tensor> maps{conv1_(x)};
    for (int i = 0; i < 3; ++i) maps.push_back(max_pool2d(maps.back(), {.kernel = 5, .stride = 1, .padding = 2}));
    return conv2_(concat(maps, -1));
  }

 private:
  SiluConv conv1_, conv2_;
};

/// Adds the convolution of stride 2 that a stage of `channels` begins with.
void begin_stage(nn::ModuleList& list, std::int64_t channels, bool depthwise) {
  if (depthwise)
    list.add<DepthwiseConv>(channels / 2, channels, 2);
  else
    list.add<SiluConv>(channels / 2, channels, 3, 2);
}

}  // namespace

SiluConv::SiluConv(std::int64_t in_channels, std::int64_t out_channels, std::int64_t kernel, std::int64_t stride,
                   std::int64_t groups)
    : layers_(in_channels, out_channels,
              {.kernel = kernel, .stride = stride, .padding = kernel / 2, .groups = groups, .bias = false},
              {.momentum = 0.03, .eps = 1e-3}, {"conv", "bn"}) {
  register_module(layers_);
}

Tensor SiluConv::forward(const Tensor& x) { return silu(layers_(x)); }

std::unique_ptr<nn::Module> silu_conv(std::int64_t in_channels, std::int64_t out_channels, std::int64_t stride,
                                      bool depthwise) {
  if (depthwise) return std::make_unique<DepthwiseConv>(in_channels, out_channels, stride);
  return std::make_unique<SiluConv>(in_channels, out_channels, 3, stride);
}

CspLayer::CspLayer(std::int64_t in_channels, std::int64_t out_channels, std::int64_t bottlenecks, bool shortcut,
                   bool depthwise)
    : conv1_(in_channels, out_channels / 2, 1),
      conv2_(in_channels, out_channels / 2, 1),
      conv3_(out_channels / 2 * 2, out_channels, 1) {
  for (std::int64_t i = 0; i < bottlenecks; ++i) bottlenecks_.add<CspBottleneck>(out_channels / 2, shortcut, depthwise);
  register_module("conv1", conv1_);
  register_module("conv2", conv2_);
  register_module("conv3", conv3_);
  register_module("m", bottlenecks_);
}

Tensor CspLayer::forward(const Tensor& x) { return conv3_(concat({bottlenecks_(conv1_(x)), conv2_(x)}, -1)); }

CspDarknet::Focus::Focus(std::int64_t in_channels, std::int64_t out_channels)
    : convolution(in_channels * 4, out_channels, 3) {
  register_module("conv", convolution);
}

Tensor CspDarknet::Focus::forward(const Tensor& x) {
  std::vector<Tensor> parts;
  for (const std::int64_t column : {0, 1})
    for (const std::int64_t row : {0, 1}) parts.push_back(slice(slice(x, 1, row, x.dim(1), 2), 2, column, x.dim(2), 2));
  return convolution(concat(parts, -1));
}

CspDarknet::CspDarknet(std::int64_t in_channels, std::int64_t width, std::int64_t blocks, bool depthwise)
    : stem_(in_channels, width) {
  begin_stage(dark2_, 2 * width, depthwise);
  dark2_.add<CspLayer>(2 * width, 2 * width, blocks, true, depthwise);
  begin_stage(dark3_, 4 * width, depthwise);
  dark3_.add<CspLayer>(4 * width, 4 * width, 3 * blocks, true, depthwise);
  begin_stage(dark4_, 8 * width, depthwise);
  dark4_.add<CspLayer>(8 * width, 8 * width, 3 * blocks, true, depthwise);
  begin_stage(dark5_, 16 * width, depthwise);
  dark5_.add<SpatialPyramid>(16 * width);
  dark5_.add<CspLayer>(16 * width, 16 * width, blocks, false, depthwise);
  register_module("stem", stem_);
  register_module("dark2", dark2_);
  register_module("dark3", dark3_);
  register_module("dark4", dark4_);
  register_module("dark5", dark5_);
}

std::vector<Tensor> CspDarknet::features(const Tensor& x) {
  std::vector<Tensor> maps{dark3_(dark2_(stem_(x)))};
  maps.push_back(dark4_(maps.back()));
  maps.push_back(dark5_(maps.back()));
  return maps;
}

}  // namespace hearth::models
