// SPDX-License-Identifier: Apache-2.0
// What a report shows of a detector.
#pragma once

#include <functional>

#include "data/boxes/box_dataset.h"
#include "train/detection/coco_evaluation.h"
#include "train/task/report_sections.h"

namespace hearth::train {

/// Detections of a lower score are not drawn, nor compared with true boxes one by one.
constexpr double shown_score = 0.3;

/// Takes the boxes of an image of a split: those detected and the true ones, in pixels of the image.
using UseBoxes = std::function<void(std::int64_t sample, const Detections& detections, const GroundTruth& truth)>;

/// Adds average precision and curves of precision by recall by class, the classes that are mixed up, errors by kind
/// with the worst of each, and images with detections beside the true boxes. `visit` calls its argument for each image
/// of the split.
void report_detection(const data::BoxDataset& part, const std::function<void(const UseBoxes&)>& visit,
                      ReportSections& sections);

/// Precision by recall at IoU 0.50 and 0.75: a curve of each class that has true boxes, for at most 8 classes, those
/// with the most. Both charts have the same curves.
std::vector<Chart> precision_charts(const CocoResult& result, const std::vector<std::string>& names);

}  // namespace hearth::train
