// SPDX-License-Identifier: Apache-2.0
// Average precision and recall of detected boxes, as COCO defines them.
#pragma once

#include <cstdint>
#include <set>
#include <vector>

#include "core/collective.h"
#include "core/tensor.h"
#include "train/detection/image_boxes.h"

namespace hearth::train {

/// COCO's twelve figures and what they are the means of. A figure is -1 where no object counts for it.
///
/// Precision is averaged over IoU thresholds 0.50, 0.55 .. 0.95, recalls 0, 0.01 .. 1 and classes; recall over the
/// thresholds and classes. Small are areas up to 32 x 32 pixels, large those from 96 x 96.
struct HEARTH_API CocoResult {
  double ap = -1;         ///< average precision
  double ap_50 = -1;      ///< at IoU 0.50
  double ap_75 = -1;      ///< at IoU 0.75
  double ap_small = -1;   ///< of small objects
  double ap_medium = -1;  ///< of medium objects
  double ap_large = -1;   ///< of large objects
  double ar_1 = -1;       ///< average recall of one detection for each image and class
  double ar_10 = -1;      ///< of 10
  double ar_100 = -1;     ///< of 100, as all average precisions
  double ar_small = -1;   ///< of small objects
  double ar_medium = -1;  ///< of medium objects
  double ar_large = -1;   ///< of large objects

  std::vector<double> ap_by_class{};             ///< `ap` of each class
  std::vector<std::int64_t> objects_by_class{};  ///< labelled boxes that count
  /// f64 [classes, 10, 101]: the precision at each IoU threshold and recall, the curve of a class; 0 above the recall
  /// that is reached.
  Tensor precision;
};

/// Collects detections and labelled boxes by image, and evaluates them as pycocotools' COCOeval does with
/// `iouType="bbox"`, to the order of equal scores: those of a smaller image id come first, in an image those that came
/// first. IoU is computed in f64 of the corner, width and height of a box. Of an image and class the 100 detections of
/// highest score count.
/// Source: Lin et al., "Microsoft COCO: Common Objects in Context" (2014); github.com/cocodataset/cocoapi.
class HEARTH_API CocoEvaluation {
 public:
  /// ConfigError unless there are 1 to 65536 classes.
  explicit CocoEvaluation(std::int64_t classes);

  /// Takes in an image. ShapeError and DTypeError for tensors that do not fit; IndexError for labels outside the
  /// classes; UsageError for an image that was added before, scores or corners that are not finite, x1 < x0 or y1 < y0,
  /// and areas that are negative or not finite. Nothing is taken in then.
  void add(std::int64_t image, const Detections& detections, const GroundTruth& truth);

  /// Makes of the images that the ranks took in, each its own, what one process takes in; all ranks call it.
  /// UsageError where two ranks have an image in common.
  void reduce(Collective& group);

  std::int64_t classes() const { return classes_; }
  /// How many were added.
  std::int64_t images() const { return static_cast<std::int64_t>(images_.size()); }
  /// Of all images so far.
  CocoResult result() const;

 private:
  /// A detection, and how it turned out: a bit for each range of areas and IoU threshold. Five words, as ranks send it.
  struct Outcome {
    std::int64_t image, label;
    double score;
    std::uint64_t matched;  // with a box
    std::uint64_t ignored;  // counts neither as correct nor as a false alarm
  };

  std::int64_t classes_;
  std::set<std::int64_t> images_;
  std::vector<std::int64_t> objects_;  // [classes, ranges of areas]: how many boxes count
  std::vector<Outcome> outcomes_;      // of an image and class by descending score
};

}  // namespace hearth::train
