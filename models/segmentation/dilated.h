// SPDX-License-Identifier: Apache-2.0
// FCN and DeepLabV3: a dilated residual network and a head that gives a class to each pixel. Parameter names are
// torchvision's. Sources: Long et al. 2015 (arXiv:1411.4038), Chen et al. 2017 (arXiv:1706.05587).
#pragma once

#include <cstdint>
#include <vector>

#include "models/nn/nn.h"
#include "models/resnet.h"

namespace hearth::models {

/// A residual network without a head, whose last two stages are dilated.
inline ResNetOptions dilated_trunk() { return {.classes = 0, .dilated_stages = 2}; }

struct FcnOptions {
  ResNetOptions trunk = dilated_trunk();
  std::int64_t classes = 21;
  double dropout = 0.1;  ///< before the last convolution
};

/// The head is a 3x3 convolution to a quarter of the trunk's channels and a 1x1 one to the classes.
class HEARTH_API Fcn : public nn::Module {
 public:
  /// ShapeError for sizes below 1, UsageError for a trunk with a head.
  explicit Fcn(const FcnOptions& options);
  /// Images [N, H, W, in_channels] to scores [N, H, W, classes], interpolated from the trunk's last map.
  Tensor forward(const Tensor& x) override;

 private:
  ResNet backbone_;
  nn::ModuleList classifier_;
};

struct DeepLabOptions {
  ResNetOptions trunk = dilated_trunk();
  std::int64_t classes = 21;
  std::int64_t channels = 256;                     ///< of the head
  std::vector<std::int64_t> rates = {12, 24, 36};  ///< dilations of the pyramid's 3x3 convolutions
  double dropout = 0.5;                            ///< behind the pyramid
};

/// The head is an atrous spatial pyramid: a 1x1 convolution, dilated 3x3 ones and the mean of the map, put together.
class HEARTH_API DeepLabV3 : public nn::Module {
 public:
  /// As Fcn.
  explicit DeepLabV3(const DeepLabOptions& options);
  /// As Fcn. In training the norm behind the mean needs two images at least (ShapeError).
  Tensor forward(const Tensor& x) override;

 private:
  ResNet backbone_;
  nn::ModuleList classifier_;
};

}  // namespace hearth::models
