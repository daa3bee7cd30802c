// SPDX-License-Identifier: Apache-2.0
// Residual networks. Every ReLU is part of the normalisation before it, and so is every addition.
#include "models/resnet.h"

#include <array>
#include <memory>
#include <span>
#include <string>

#include "autograd/grad_mode.h"
#include "ops/ops.h"

namespace hearth::models {

namespace {

nn::Conv2dLayerOptions convolution(std::int64_t kernel, std::int64_t stride, std::int64_t dilation = 1) {
  return {.kernel = kernel,
          .stride = stride,
          .padding = kernel / 2 * dilation,
          .dilation = dilation,
          .bias = false,
          .weight_init = nn::init::kaiming_normal_fan_out()};
}

struct BlockOptions {
  std::int64_t in_channels;
  std::int64_t width;
  std::int64_t stride;
  std::int64_t dilation;        ///< of the convolution that has the stride
  std::int64_t stage_dilation;  ///< of the other blocks of its stage
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

/// The strided 1x1 convolution with its norm that the shortcut is where a block changes the shape, else null.
std::unique_ptr<nn::ConvNorm> make_projection(const BlockOptions& options, std::int64_t out_channels) {
  if (options.stride == 1 && options.in_channels == out_channels) return nullptr;
  return std::make_unique<nn::ConvNorm>(options.in_channels, out_channels, convolution(1, options.stride),
                                        options.norm(Activation::none),
                                        nn::ConvNormNames{.convolution = "0", .norm = "1"});
}

/// What the layers make of x one after the other, the norm of the last adding what `projection` makes of x, or x where
/// it is null.
Tensor residual_sum(std::span<nn::ConvNorm* const> layers, nn::ConvNorm* projection, const Tensor& x) {
  // A projection that is recorded first adds its gradient last, on the CPU only to the pixels that it reads.
  const bool first = projection != nullptr && is_recording() && x.device().is_cpu();
  const Tensor added = first ? (*projection)(x) : x;
  Tensor y = x;
  for (nn::ConvNorm* const layer : layers.first(layers.size() - 1)) y = (*layer)(y);
  nn::ConvNorm& last = *layers.back();
  return projection == nullptr || first ? last(y, added) : last(y, *projection, x);
}

class BasicBlock : public nn::Module {
 public:
  static constexpr std::int64_t expansion = 1;

  explicit BasicBlock(const BlockOptions& options)
      : conv1_(options.in_channels, options.width, convolution(3, options.stride, options.dilation),
               options.norm(Activation::relu), {"conv1", "bn1"}),
        conv2_(options.width, options.width, convolution(3, 1, options.stage_dilation), options.last_norm(),
               {"conv2", "bn2"}),
        projection_(make_projection(options, options.width)) {
    register_module(conv1_);
    register_module(conv2_);
    if (projection_) register_module("downsample", *projection_);
  }

  Tensor forward(const Tensor& x) override { return residual_sum(std::array{&conv1_, &conv2_}, projection_.get(), x); }

 private:
  nn::ConvNorm conv1_, conv2_;
  std::unique_ptr<nn::ConvNorm> projection_;
};

class Bottleneck : public nn::Module {
 public:
  static constexpr std::int64_t expansion = 4;

  explicit Bottleneck(const BlockOptions& options)
      : conv1_(options.in_channels, options.width, convolution(1, 1), options.norm(Activation::relu), {"conv1", "bn1"}),
        conv2_(options.width, options.width, convolution(3, options.stride, options.dilation),
               options.norm(Activation::relu), {"conv2", "bn2"}),
        conv3_(options.width, options.width * expansion, convolution(1, 1), options.last_norm(), {"conv3", "bn3"}),
        projection_(make_projection(options, options.width * expansion)) {
    register_module(conv1_);
    register_module(conv2_);
    register_module(conv3_);
    if (projection_) register_module("downsample", *projection_);
  }

  Tensor forward(const Tensor& x) override {
    return residual_sum(std::array{&conv1_, &conv2_, &conv3_}, projection_.get(), x);
  }

 private:
  nn::ConvNorm conv1_, conv2_, conv3_;
  std::unique_ptr<nn::ConvNorm> projection_;
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

/// The plan's first stages, and the stride of each.
std::vector<std::int64_t> strides_of(const ResNetOptions& options, Plan& plan) {
  const std::size_t all = plan.blocks.size();
  HEARTH_CHECK(ShapeError, options.stages >= 0 && options.stages <= static_cast<std::int64_t>(all),
               "resnet: ", options.stages, " stages of ", all, "; give 0 for all, or fewer");
  if (options.stages > 0) plan.blocks.resize(static_cast<std::size_t>(options.stages));
  std::vector<std::int64_t> strides = options.strides;
  if (strides.empty()) strides.assign(plan.blocks.size(), 2), strides[0] = 1;
  HEARTH_CHECK(ShapeError, strides.size() == plan.blocks.size(), "resnet: ", strides.size(), " strides for ",
               plan.blocks.size(), " stages; there is one for each");
  return strides;
}

template <class Block>
std::unique_ptr<nn::ModuleList> make_stage(std::int64_t count, BlockOptions options) {
  auto stage = std::make_unique<nn::ModuleList>();
  for (std::int64_t i = 0; i < count; ++i) {
    stage->add<Block>(options);
    options.in_channels = options.width * Block::expansion;
    options.stride = 1;
    options.dilation = options.stage_dilation;
  }
  return stage;
}

}  // namespace

ResNet::ResNet(const ResNetOptions& options)
    : stem_(options.stem),
      conv1_(options.in_channels, options.width,
             options.stem == ResNetStem::imagenet ? convolution(7, 2) : convolution(3, 1),
             {.momentum = options.norm_momentum, .activation = Activation::relu}, {"conv1", "bn1"}) {
  Plan plan = plan_of(options);
  const std::vector<std::int64_t> strides = strides_of(options, plan);
  const auto count = static_cast<std::int64_t>(plan.blocks.size());
  HEARTH_CHECK(ShapeError, options.dilated_stages >= 0 && options.dilated_stages < count,
               "resnet: ", options.dilated_stages, " dilated stages of ", count,
               "; the first one has no stride to replace");
  register_module(conv1_);
  BlockOptions block{.in_channels = options.width,
                     .width = options.width,
                     .stride = 1,
                     .dilation = 1,
                     .stage_dilation = 1,
                     .zero_init_residual = options.zero_init_residual,
                     .norm_momentum = options.norm_momentum};
  for (std::size_t i = 0; i < plan.blocks.size(); ++i) {
    HEARTH_CHECK(ShapeError, plan.blocks[i] >= 1, "resnet: stage ", i + 1, " has ", plan.blocks[i],
                 " blocks; each stage has at least 1");
    if (i > 0) block.width = checked_mul(block.width, 2, "resnet width");
    const bool is_dilated = static_cast<std::int64_t>(i) >= count - options.dilated_stages;
    block.stride = is_dilated ? 1 : strides[i];
    // The block that would have the stride sees what it saw with it.
    block.dilation = block.stage_dilation;
    if (is_dilated) block.stage_dilation *= strides[i];
    stages_.push_back(plan.bottleneck ? make_stage<Bottleneck>(plan.blocks[i], block)
                                      : make_stage<BasicBlock>(plan.blocks[i], block));
    register_module("layer" + std::to_string(i + 1), *stages_.back());
    stages_.back()->recompute(options.recompute);
    block.in_channels = block.width * (plan.bottleneck ? Bottleneck::expansion : BasicBlock::expansion);
    channels_.push_back(block.in_channels);
  }
  if (options.classes == 0) return;
  fc_ = std::make_unique<nn::Linear>(block.in_channels, options.classes);
  register_module("fc", *fc_);
}

Tensor ResNet::forward(const Tensor& x) { return outputs_of(embedding(x)); }

std::vector<Tensor> ResNet::features(const Tensor& x) {
  Tensor y = stem_ == ResNetStem::imagenet ? conv1_.pooled(x, {.kernel = 3, .stride = 2, .padding = 1}) : conv1_(x);
  std::vector<Tensor> all;
  for (const auto& stage : stages_) all.push_back(y = (*stage)(y));
  return all;
}

Tensor ResNet::embedding(const Tensor& x) { return global_avg_pool(features(x).back()); }

Tensor ResNet::outputs_of(const Tensor& embedding) {
  HEARTH_CHECK(UsageError, fc_ != nullptr, "resnet: it was made without a head (classes is 0); call features()");
  return (*fc_)(embedding);
}

}  // namespace hearth::models
