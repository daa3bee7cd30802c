// SPDX-License-Identifier: Apache-2.0
// VGG models. Source: Simonyan and Zisserman 2014 (arXiv:1409.1556). Parameter names are torchvision's.
#pragma once

#include <cstdint>

#include "models/embedding_model.h"
#include "models/nn/nn.h"

namespace hearth::models {

enum class VggHead {
  imagenet,  ///< three linear layers on 7x7 features; the image must reduce to a multiple of 7, or to 1
  small,     ///< mean over the image, then one linear layer
};

struct VggOptions {
  int depth = 16;  ///< 11, 13, 16 or 19
  bool batch_norm = false;
  VggHead head = VggHead::imagenet;
  std::int64_t width = 64;         ///< channels of the first stage
  std::int64_t head_width = 4096;  ///< of the imagenet head
  double dropout = 0.5;
  std::int64_t in_channels = 3;
  std::int64_t classes = 1000;
  bool recompute = false;  ///< keep only what goes into each stage
};

class HEARTH_API Vgg : public nn::Module, public EmbeddingModel {
 public:
  /// ConfigError for an unknown depth, ShapeError for sizes below 1.
  explicit Vgg(const VggOptions& options);
  /// x [N, H, W, in_channels], H and W at least 32, to logits [N, classes].
  Tensor forward(const Tensor& x) override;
  Tensor embedding(const Tensor& x) override;
  Tensor outputs_of(const Tensor& embedding) override;

 private:
  VggHead head_;
  nn::ModuleList features_;  // a list without a name for each stage
  nn::ModuleList classifier_;
};

}  // namespace hearth::models
