// SPDX-License-Identifier: Apache-2.0
// FCOS: each point of a feature pyramid says what lies on it and how far the sides of its box are.
// Source: Tian et al. 2019 (arXiv:1904.01355), as torchvision's. Parameter names are torchvision's.
#pragma once

#include <cstdint>

#include "models/detection/dense_head.h"
#include "models/detection/detector.h"
#include "models/detection/pyramid.h"
#include "models/detection/targets.h"
#include "models/resnet.h"

namespace hearth::models {

struct FcosOptions {
  ResNetOptions trunk = {.classes = 0};  ///< four stages, of which the last three are used
  std::int64_t classes = 90;
  std::int64_t channels = 256;    ///< of the pyramid and the heads, a multiple of `groups`
  std::int64_t convolutions = 4;  ///< of each head before its outputs
  std::int64_t groups = 32;       ///< of the heads' group norms
  double radius = 1.5;            ///< assign_points()
};

class HEARTH_API Fcos : public nn::Module, public Detector {
 public:
  /// ShapeError for sizes below 1; UsageError for a trunk of other than four stages.
  explicit Fcos(const FcosOptions& options);
  /// Images [N, H, W, in_channels] to [N, P, classes + 5], P the points of all levels: logits of the classes, distances
  /// of the left, upper, right and lower side in sides of the point's anchor, and the logit of the centre-ness.
  Tensor forward(const Tensor& x) override;
  std::int64_t classes() const override { return options_.classes; }
  /// The sum of focal loss, giou loss and the cross entropy of the centre-ness, by the number of points with a box.
  Tensor loss(const Tensor& outputs, std::int64_t height, std::int64_t width, const TrueBoxes& truth) override;
  std::vector<Detections> detections(const Tensor& outputs, std::int64_t height, std::int64_t width,
                                     const DetectionOptions& options) override;

 private:
  struct Points : Anchors {
    Tensor reach;  ///< f64 [P, 2]
  };
  /// Those of an image of this size.
  const Points& points_of(std::int64_t height, std::int64_t width, Device device);

  FcosOptions options_;
  ResNet body_;
  FeaturePyramid pyramid_;
  NamedGroup backbone_, head_;
  DenseHead classification_, regression_;
  BySize<Points> points_;
};

}  // namespace hearth::models
