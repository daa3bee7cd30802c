// SPDX-License-Identifier: Apache-2.0
// SSD: default boxes of six feature maps say what lies on them and how its box differs from them.
// Source: Liu et al. 2016 (arXiv:1512.02325), with the trunk of MLPerf's reference (mlcommons/training,
// single_stage_detector). Parameter names of the heads are torchvision's, those of the trunk a ResNet's.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "models/detection/dense_head.h"
#include "models/detection/detector.h"
#include "models/detection/targets.h"
#include "models/resnet.h"

namespace hearth::models {

struct SsdOptions {
  /// Three stages are made, the third of stride 1: 38 x 38 positions of 300 x 300 pixels.
  ResNetOptions trunk = {.depth = 34, .classes = 0};
  std::int64_t classes = 80;  ///< without the background
};

/// As MLPerf's SSD300 but for the points that follow torchvision's SSD:
/// - The loss is divided by the batch's anchors with a box; MLPerf's is by image, and the mean over images.
/// - An overlap of exactly 0.5 makes a box; in MLPerf's it is background.
/// - Anchors of a position lie one after the other, in MLPerf's those of a shape.
/// - Boxes of images without any overlap get no anchor (assign_anchors()).
/// The default boxes are both's, 8,732 of an image of 300 x 300 pixels. Their centres are as far apart as the trunk's
/// strides for the first four maps, and spread evenly over the image for the two of convolutions without padding. Their
/// sides are shares of the image's, so that they grow with it.
class HEARTH_API Ssd : public nn::Module, public Detector {
 public:
  /// ShapeError for sizes below 1 or a trunk of fewer than three stages, UsageError for stages, strides or a head that
  /// the trunk's options give.
  explicit Ssd(const SsdOptions& options);
  /// Images [N, H, W, in_channels] to [N, P, 1 + classes + 4]: logits of the background and the classes, and
  /// encode_deltas() with weights 10 and 5. ShapeError for images below smallest_image().
  Tensor forward(const Tensor& x) override;
  std::int64_t classes() const override { return options_.classes; }
  /// The fewest rows and columns of an image: 257, or 65 with the small stem.
  static std::int64_t smallest_image(ResNetStem stem);
  /// multibox_loss() with three anchors of background for each with a box, and the smooth L1 loss of the deltas of the
  /// latter, by their number. An anchor gets a box from an overlap of 0.5 on, and each box its best anchor at any.
  Tensor loss(const Tensor& outputs, std::int64_t height, std::int64_t width, const TrueBoxes& truth) override;
  /// DetectionOptions::level_limit is for the boxes of each class.
  std::vector<Detections> detections(const Tensor& outputs, std::int64_t height, std::int64_t width,
                                     const DetectionOptions& options) override;

 private:
  /// The convolutions of each map, with one kind of output.
  class MapHead : public nn::Module {
   public:
    MapHead(const std::vector<std::int64_t>& channels, std::int64_t numbers);
    /// For a map [N, H, W, channels]: [N, H W anchors, numbers].
    Tensor output_of(std::size_t map, const Tensor& x);

   private:
    nn::ModuleList convolutions_;
    std::int64_t numbers_;
  };
  /// Those of an image of this size.
  const Anchors& anchors_of(std::int64_t height, std::int64_t width, Device device);

  SsdOptions options_;
  ResNet body_;
  nn::ModuleList extra_;
  NamedGroup backbone_, head_;
  std::unique_ptr<MapHead> classification_, regression_;
  BySize<Anchors> anchors_;
};

}  // namespace hearth::models
