// SPDX-License-Identifier: Apache-2.0
// The boxes of an image: those that a model detects, and those that are labelled.
#pragma once

#include <cstdint>
#include <vector>

#include "core/tensor.h"

namespace hearth::train {

/// The boxes that a model detects in an image, in any order. Tensors may lie on any device.
struct HEARTH_API Detections {
  Tensor boxes;   ///< [N, 4], floating: the corners x0, y0, x1, y1 in pixels of the original image
  Tensor scores;  ///< [N], floating
  Tensor labels;  ///< [N], i64 or i32: classes
};

/// The labelled boxes of an image. Tensors may lie on any device; those that are not defined have the default.
struct HEARTH_API GroundTruth {
  Tensor boxes;   ///< [N, 4], as of Detections
  Tensor labels;  ///< [N], i64 or i32: classes
  /// [N], floating: the areas of the objects in square pixels, which COCO's files have of the masks. They choose
  /// between small, medium and large. Default: the areas of the boxes.
  Tensor areas{};
  /// [N], not 0 where a box stands for a crowd: any number of detections may match it, by the share of their own area
  /// inside, and neither they nor the box count. Default: none.
  Tensor crowd{};
  /// [N], not 0 where neither the box nor the detection that matches it counts. pycocotools has only crowds of these:
  /// it overwrites `ignore` of a file by `iscrowd`. Default: none.
  Tensor ignored{};
};

/// A corner, and the size to the right and down, in pixels.
struct HEARTH_API BoxExtent {
  double x, y, width, height;
  double area() const { return width * height; }
};

/// A box of Detections.
struct HEARTH_API DetectedBox {
  BoxExtent box;
  double score;
  std::int64_t label;
};

/// A box of GroundTruth.
struct HEARTH_API LabelledBox {
  BoxExtent box;
  double area;
  std::int64_t label;
  bool crowd;
  bool ignored;  ///< does not count; so of crowds
};

/// The IoU of both; of a crowd, the share of the detection that lies inside. As maskUtils.iou computes it, to the bit.
HEARTH_API double overlap_of(const DetectedBox& detected, const LabelledBox& labelled);

/// Class by class, the best first; equal scores stay in order. ShapeError and DTypeError for tensors that do not fit;
/// IndexError for labels outside the classes; UsageError for scores or corners that are not finite, x1 < x0 or y1 < y0.
HEARTH_API std::vector<DetectedBox> detected_boxes(const Detections& detections, std::int64_t classes);
/// Class by class, else in order. Errors as there; UsageError also for areas that are negative or not finite.
HEARTH_API std::vector<LabelledBox> labelled_boxes(const GroundTruth& truth, std::int64_t classes);

}  // namespace hearth::train
