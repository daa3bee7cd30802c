// SPDX-License-Identifier: Apache-2.0
// YOLOX: each point of three maps says whether an object is there, of which class, and where its box is.
// Source: Ge et al. 2021 (arXiv:2107.08430), as Megvii's code at version 0.3. Parameter names are that code's.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "models/detection/detector.h"
#include "models/detection/targets.h"
#include "models/nn/nn.h"

namespace hearth::models {

enum class YoloxSize : std::uint8_t { nano, tiny, s, m, l, x };

struct YoloxOptions {
  YoloxSize size = YoloxSize::s;  ///< nano has depthwise convolutions
  double depth = 0;               ///< times the blocks of l; 0 takes the size's
  double width = 0;               ///< times the channels of l, 64 in the first stage; 0 takes the size's
  std::int64_t in_channels = 3;
  std::int64_t classes = 80;
  double radius = 1.5;  ///< assign_simota()
};

class YoloxNeck;
class YoloxHead;

class HEARTH_API Yolox : public nn::Module, public Detector {
 public:
  /// Rows and columns of images are multiples of this.
  static constexpr std::int64_t stride = 32;

  /// ShapeError for sizes below 1, or a width that leaves no channels.
  explicit Yolox(const YoloxOptions& options);
  ~Yolox() override;
  /// Images [N, H, W, in_channels] to [N, P, classes + 5], P the points of the maps of strides 8, 16 and 32: the shift
  /// of the box's centre from the point's left upper corner and the logarithms of its sides, both in strides, then
  /// the logits of there being an object and of the classes. ShapeError unless the stride of 32 divides H and W.
  Tensor forward(const Tensor& x) override;
  std::int64_t classes() const override { return options_.classes; }
  /// The sum of 5 (1 - iou^2) and the cross entropies of object and class, by the number of points with a box. The
  /// class of a point is to be as probable as its predicted box overlaps the true one.
  Tensor loss(const Tensor& outputs, std::int64_t height, std::int64_t width, const TrueBoxes& truth) override;
  /// Each point has its best class alone, whose probability times that of an object is the score.
  std::vector<Detections> detections(const Tensor& outputs, std::int64_t height, std::int64_t width,
                                     const DetectionOptions& options) override;

 private:
  struct Points {
    std::int64_t height = 0, width = 0;
    std::vector<std::int64_t> levels;  ///< points of each
    Tensor anchors;                    ///< f32 [P, 4]: the squares that the points are the centres of
  };
  /// Those of an image of this size.
  const Points& points_of(std::int64_t height, std::int64_t width, Device device);
  void require_outputs(const Tensor& outputs, const Points& points) const;

  YoloxOptions options_;
  std::unique_ptr<YoloxNeck> neck_;
  std::unique_ptr<YoloxHead> head_;
  BySize<Points> points_;
};

}  // namespace hearth::models
