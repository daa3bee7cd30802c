// SPDX-License-Identifier: Apache-2.0
// What is wrong with the boxes that a model detects in an image: which kinds of errors, which classes for which others.
// Kinds are a simplification of those in Bolya et al., "TIDE: A General Toolbox for Identifying Object Detection
// Errors" (2020).
#pragma once

#include <optional>
#include <vector>

#include "train/detection/image_boxes.h"
#include "train/model/metrics.h"

namespace hearth::train {

/// The IoU from which a detection is of a labelled box, and from which it is near it.
constexpr double matched_overlap = 0.5, near_overlap = 0.1;

/// What became of a detection, or of a labelled box. The first that applies counts; of several boxes of which a
/// detection is, the one of the largest IoU.
enum class BoxOutcome {
  correct,      ///< is of a box of its class, which no better detection matches
  wrong_class,  ///< is of a box of another class
  duplicate,    ///< is of a box of its class, which a better detection matches
  wrong_place,  ///< is near a box of its class
  background,   ///< a false alarm of another kind
  missed,       ///< a labelled box: no detection of it is correct, and none of wrong class or place is about it
};
constexpr std::size_t box_outcomes = 6;

struct JudgedBox {
  BoxOutcome outcome;
  std::optional<DetectedBox> detected;  ///< none where missed
  std::optional<LabelledBox> labelled;  ///< the one that the outcome is about; none for background
  double overlap = 0;                   ///< IoU of both; else the largest with any box that is compared
};

/// The detections with a score of at least `min_score`, the best first, then the boxes missed.
///
/// Each detection matches the box of largest IoU, from 0.5, among those of its class that are not matched yet. Crowds
/// and boxes to be ignored are neither found nor missed. A detection without a match that is of such a box, or lies in
/// a crowd by half of its area, is left out. Errors as of detected_boxes() and labelled_boxes().
std::vector<JudgedBox> judged_boxes(const Detections& detections, const GroundTruth& truth, std::int64_t classes,
                                    double min_score);

/// Adds an image to a matrix of the classes and, as its last class, background: label and prediction of each detection
/// and of the box it matches. They match as for judged_boxes(), but whatever their classes; of equal IoU a box of the
/// detection's class goes first. A detection without a match has the label background, a box without is predicted as
/// background. Errors as there.
void add_confusions(const Detections& detections, const GroundTruth& truth, double min_score, ConfusionMatrix& matrix);

}  // namespace hearth::train
