// SPDX-License-Identifier: Apache-2.0
// Residual networks. Every ReLU is part of the normalisation before it, and so is every addition.
#include "models/resnet.h"

#include <memory>
#include <string>

#include "ops/ops.h"

namespace hearth::models {

namespace {

nn::Conv2dLayerOptions convolution(std::int64_t kernel, std::int64_t stride) {
  return {.kernel = kernel,
          .stride = stride,
          .padding = kernel / 2,
          .bias = false,
          .weight_init = nn::init::kaiming_normal_fan_out()};
}

struct BlockOptions {
  std::int64_t in_channels;
  std::int64_t width;
  std::int64_t stride;
  bool zero_init_residual;
  double norm_momentum;

  nn::BatchNormLayerOptions norm(Activation activation) const {
    return {.momentum = norm_momentum, .activation = activation};
  }
  /// The norm that the shortcut is added to.
  nn::BatchNormLayerOptions last_norm() const {
    return {
        .momentum = norm_momentum, .activation = Activation::relu, .initial_weight = zero_init_residual ? 0.0 : 1.0};
  }
};

/// The identity, or where the block changes the shape a strided 1x1 convolution with its norm.
class Shortcut : public nn::Module {
 public:
  Shortcut(const BlockOptions& options, std::int64_t out_channels)
      : convolution_(options.in_channels, out_channels, convolution(1, options.stride)),
        norm_(out_channels, options.norm(Activation::none)) {
    adopt("0", convolution_);
    adopt("1", norm_);
  }
  Tensor forward(const Tensor& x) override { return nn::convolve_and_normalize(convolution_, norm_, x); }

  static std::unique_ptr<Shortcut> if_needed(const BlockOptions& options, std::int64_t out_channels) {
    if (options.stride == 1 && options.in_channels == out_channels) return nullptr;
    return std::make_unique<Shortcut>(options, out_channels);
  }

 private:
  nn::Conv2d convolution_;
  nn::BatchNorm norm_;
};

class BasicBlock : public nn::Module {
 public:
  static constexpr std::int64_t expansion = 1;

  explicit BasicBlock(const BlockOptions& options)
      : conv1_(options.in_channels, options.width, convolution(3, options.stride)),
        bn1_(options.width, options.norm(Activation::relu)),
        conv2_(options.width, options.width, convolution(3, 1)),
        bn2_(options.width, options.last_norm()),
        downsample_(Shortcut::if_needed(options, options.width)) {
    adopt("conv1", conv1_);
    adopt("bn1", bn1_);
    adopt("conv2", conv2_);
    adopt("bn2", bn2_);
    if (downsample_) adopt("downsample", *downsample_);
  }

  Tensor forward(const Tensor& x) override {
    const Tensor y = nn::convolve_and_normalize(conv1_, bn1_, x);
    return nn::convolve_and_normalize(conv2_, bn2_, y, [&] { return downsample_ ? (*downsample_)(x) : x; });
  }

 private:
  nn::Conv2d conv1_;
  nn::BatchNorm bn1_;
  nn::Conv2d conv2_;
  nn::BatchNorm bn2_;
  std::unique_ptr<Shortcut> downsample_;
};

class Bottleneck : public nn::Module {
 public:
  static constexpr std::int64_t expansion = 4;

  explicit Bottleneck(const BlockOptions& options)
      : conv1_(options.in_channels, options.width, convolution(1, 1)),
        bn1_(options.width, options.norm(Activation::relu)),
        conv2_(options.width, options.width, convolution(3, options.stride)),
        bn2_(options.width, options.norm(Activation::relu)),
        conv3_(options.width, options.width * expansion, convolution(1, 1)),
        bn3_(options.width * expansion, options.last_norm()),
        downsample_(Shortcut::if_needed(options, options.width * expansion)) {
    adopt("conv1", conv1_);
    adopt("bn1", bn1_);
    adopt("conv2", conv2_);
    adopt("bn2", bn2_);
    adopt("conv3", conv3_);
    adopt("bn3", bn3_);
    if (downsample_) adopt("downsample", *downsample_);
  }

  Tensor forward(const Tensor& x) override {
    Tensor y = nn::convolve_and_normalize(conv1_, bn1_, x);
    y = nn::convolve_and_normalize(conv2_, bn2_, y);
    return nn::convolve_and_normalize(conv3_, bn3_, y, [&] { return downsample_ ? (*downsample_)(x) : x; });
  }

 private:
  nn::Conv2d conv1_;
  nn::BatchNorm bn1_;
  nn::Conv2d conv2_;
  nn::BatchNorm bn2_;
  nn::Conv2d conv3_;
  nn::BatchNorm bn3_;
  std::unique_ptr<Shortcut> downsample_;
};

struct Plan {
  std::vector<std::int64_t> blocks;
  bool bottleneck;
};

Plan plan_of(const ResNetOptions& options) {
  if (!options.blocks.empty()) {
    HEARTH_CHECK(ShapeError, options.blocks.size() <= 6, "resnet: ", options.blocks.size(),
                 " stages; there are one to six");
    return {options.blocks, options.bottleneck};
  }
  switch (options.depth) {
    case 10:
      return {{1, 1, 1, 1}, false};
    case 18:
      return {{2, 2, 2, 2}, false};
    case 34:
      return {{3, 4, 6, 3}, false};
    case 50:
      return {{3, 4, 6, 3}, true};
    case 101:
      return {{3, 4, 23, 3}, true};
    case 152:
      return {{3, 8, 36, 3}, true};
    default:
      break;
  }
  throw ConfigError(join_text("resnet: there is no depth ", options.depth,
                              "; choose 10, 18, 34, 50, 101 or 152, or give the blocks of each stage"));
}

template <class Block>
std::unique_ptr<nn::ModuleList> make_stage(std::int64_t count, BlockOptions options) {
  auto stage = std::make_unique<nn::ModuleList>();
  for (std::int64_t i = 0; i < count; ++i) {
    stage->add<Block>(options);
    options.in_channels = options.width * Block::expansion;
    options.stride = 1;
  }
  return stage;
}

}  // namespace

ResNet::ResNet(const ResNetOptions& options)
    : stem_(options.stem),
      conv1_(options.in_channels, options.width,
             options.stem == ResNetStem::imagenet ? convolution(7, 2) : convolution(3, 1)),
      bn1_(options.width, {.momentum = options.norm_momentum, .activation = Activation::relu}) {
  const Plan plan = plan_of(options);
  adopt("conv1", conv1_);
  adopt("bn1", bn1_);
  BlockOptions block{.in_channels = options.width,
                     .width = options.width,
                     .stride = 1,
                     .zero_init_residual = options.zero_init_residual,
                     .norm_momentum = options.norm_momentum};
  for (std::size_t i = 0; i < plan.blocks.size(); ++i) {
    HEARTH_CHECK(ShapeError, plan.blocks[i] >= 1, "resnet: stage ", i + 1, " has ", plan.blocks[i],
                 " blocks; each stage has at least 1");
    if (i > 0) {
      block.width = checked_mul(block.width, 2, "resnet width");
      block.stride = 2;
    }
    stages_.push_back(plan.bottleneck ? make_stage<Bottleneck>(plan.blocks[i], block)
                                      : make_stage<BasicBlock>(plan.blocks[i], block));
    adopt("layer" + std::to_string(i + 1), *stages_.back());
    stages_.back()->recompute(options.recompute);
    block.in_channels = block.width * (plan.bottleneck ? Bottleneck::expansion : BasicBlock::expansion);
  }
  fc_ = std::make_unique<nn::Linear>(block.in_channels, options.classes);
  adopt("fc", *fc_);
}

Tensor ResNet::forward(const Tensor& x) { return outputs_of(embedding(x)); }

Tensor ResNet::embedding(const Tensor& x) {
  Tensor y = nn::convolve_and_normalize(conv1_, bn1_, x);
  if (stem_ == ResNetStem::imagenet) y = max_pool2d(y, {.kernel = 3, .stride = 2, .padding = 1});
  for (const auto& stage : stages_) y = (*stage)(y);
  return global_avg_pool(y);
}

Tensor ResNet::outputs_of(const Tensor& embedding) { return (*fc_)(embedding); }

}  // namespace hearth::models
