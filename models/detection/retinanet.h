// SPDX-License-Identifier: Apache-2.0
// RetinaNet: each anchor of a feature pyramid says what lies on it and how its box differs from it.
// Source: Lin et al. 2017 (arXiv:1708.02002), as torchvision's retinanet_resnet50_fpn. Parameter names are
// torchvision's.
#pragma once

#include <cstdint>
#include <vector>

#include "models/detection/dense_head.h"
#include "models/detection/detector.h"
#include "models/detection/pyramid.h"
#include "models/detection/targets.h"

namespace hearth::models {

struct RetinaNetOptions {
  ResNetOptions trunk = {.classes = 0};  ///< four stages, of which the last three are used
  std::int64_t classes = 90;
  std::int64_t channels = 256;    ///< of the pyramid and the heads
  std::int64_t convolutions = 4;  ///< of each head before its outputs
  /// Sides of each map's smallest anchor, in its stride. Others are 2^(1/3) and 2^(2/3) times as large, and each has
  /// the ratios of height and width 1/2, 1 and 2.
  double anchor_scale = 4;
};

class HEARTH_API RetinaNet : public nn::Module, public Detector {
 public:
  /// ShapeError for sizes below 1; UsageError for a trunk of other than four stages, or an anchor_scale that is not
  /// finite and at least 1.
  explicit RetinaNet(const RetinaNetOptions& options);
  /// Images [N, H, W, in_channels] to [N, P, classes + 4], P nine anchors at each position of all levels: logits of the
  /// classes, and encode_deltas().
  Tensor forward(const Tensor& x) override;
  std::int64_t classes() const override { return options_.classes; }
  /// The focal loss of the classes and the L1 loss of the deltas. Each image's sums are divided by its number of
  /// anchors with a box, and the mean is over the images. Anchors get boxes by assign_anchors(), from an overlap of 0.5
  /// on, are background below 0.4, and each box's best anchors get one at any overlap.
  Tensor loss(const Tensor& outputs, std::int64_t height, std::int64_t width, const TrueBoxes& truth) override;
  std::vector<Detections> detections(const Tensor& outputs, std::int64_t height, std::int64_t width,
                                     const DetectionOptions& options) override;

 private:
  /// Those of an image of this size.
  const Anchors& anchors_of(std::int64_t height, std::int64_t width, Device device);

  RetinaNetOptions options_;
  ResNet body_;
  FeaturePyramid pyramid_;
  NamedGroup backbone_, head_;
  DenseHead classification_, regression_;
  BySize<Anchors> anchors_;
};

}  // namespace hearth::models
