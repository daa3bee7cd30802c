// SPDX-License-Identifier: Apache-2.0
// Residual networks, version 1.5: in a bottleneck the 3x3 convolution has the stride.
// Source: He et al. 2015 (arXiv:1512.03385). Parameter names are torchvision's.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "models/embedding_model.h"
#include "models/nn/nn.h"

namespace hearth::models {

enum class ResNetStem {
  imagenet,  ///< 7x7 stride 2, then 3x3 max pool stride 2
  small,     ///< 3x3 stride 1, for images of about 32 pixels
};

struct ResNetOptions {
  int depth = 50;  ///< 10, 18, 34, 50, 101 or 152
  /// Blocks of each stage, instead of the depth's; one to six stages.
  std::vector<std::int64_t> blocks = {};
  /// Bottleneck blocks (4 times wider outputs) where `blocks` is given; a depth decides by itself.
  bool bottleneck = false;
  /// Stages to make, the first ones; 0: all that there are.
  std::int64_t stages = 0;
  /// Strides of the stages that are made; empty: 1, and 2 for the later ones.
  std::vector<std::int64_t> strides = {};
  ResNetStem stem = ResNetStem::imagenet;
  std::int64_t width = 64;  ///< channels of the first stage; each later one has twice as many
  std::int64_t in_channels = 3;
  std::int64_t classes = 1000;  ///< 0: without a head, for features() alone
  /// The last so many stages keep the rows and columns of the one before, and their 3x3 convolutions see further by
  /// dilation instead (torchvision's replace_stride_with_dilation).
  std::int64_t dilated_stages = 0;
  /// Start each block as the identity: the last norm's weight is 0 (Goyal et al. 2017, arXiv:1706.02677).
  bool zero_init_residual = false;
  double norm_momentum = 0.1;
  /// Keep only what goes into each block and compute the rest of it again in the backward pass.
  bool recompute = false;
};

class HEARTH_API ResNet : public nn::Module, public EmbeddingModel {
 public:
  /// ConfigError for an unknown depth, ShapeError for sizes below 1, more than six stages, more to make than there are,
  /// another number of strides, or more dilated stages than there are behind the first.
  explicit ResNet(const ResNetOptions& options);
  /// What each stage makes of x [N, H, W, in_channels], the largest map first. Each later one has the rows and columns
  /// of the one before by its stride, rounded up, unless it is dilated.
  std::vector<Tensor> features(const Tensor& x);
  /// Channels of each of the features().
  const std::vector<std::int64_t>& feature_channels() const { return channels_; }
  /// x [N, H, W, in_channels] to logits [N, classes].
  Tensor forward(const Tensor& x) override;
  Tensor embedding(const Tensor& x) override;
  Tensor outputs_of(const Tensor& embedding) override;

 private:
  ResNetStem stem_;
  nn::ConvNorm conv1_;
  std::vector<std::unique_ptr<nn::ModuleList>> stages_;
  std::vector<std::int64_t> channels_;
  std::unique_ptr<nn::Linear> fc_;
};

}  // namespace hearth::models
