// SPDX-License-Identifier: Apache-2.0
#include "train/detection/detection_errors.h"

#include <algorithm>

namespace hearth::train {
namespace {

/// The boxes of an image that are compared.
struct ComparedBoxes {
  std::vector<DetectedBox> detected;  // the best first
  std::vector<LabelledBox> labelled;  // those that count
  std::vector<LabelledBox> ignored;   // crowds too

  ComparedBoxes(const Detections& detections, const GroundTruth& truth, std::int64_t classes, double min_score)
      : detected(detected_boxes(detections, classes)) {
    std::erase_if(detected, [&](const DetectedBox& box) { return box.score < min_score; });
    std::stable_sort(detected.begin(), detected.end(),
                     [](const DetectedBox& a, const DetectedBox& b) { return a.score > b.score; });
    for (const LabelledBox& box : labelled_boxes(truth, classes)) (box.ignored ? ignored : labelled).push_back(box);
  }

  bool is_ignored(const DetectedBox& box) const {
    return std::ranges::any_of(ignored,
                               [&](const LabelledBox& other) { return overlap_of(box, other) >= matched_overlap; });
  }
};

struct Nearest {
  std::size_t index;   // of the labelled box; their number where there is none
  double overlap = 0;  // 0 there
};

/// The labelled box of the largest IoU, at least `min_overlap`, among those that `admits` takes; of equals that of its
/// class.
template <class Admits>
Nearest nearest_box(const DetectedBox& box, const std::vector<LabelledBox>& labelled, double min_overlap,
                    const Admits& admits) {
  Nearest best{labelled.size()};
  for (std::size_t i = 0; i < labelled.size(); ++i) {
    if (!admits(i)) continue;
    const double overlap = overlap_of(box, labelled[i]);
    const bool is_first = best.index == labelled.size();
    const bool is_better =
        is_first || overlap > best.overlap ||
        (overlap == best.overlap && labelled[i].label == box.label && labelled[best.index].label != box.label);
    if (overlap >= min_overlap && is_better) best = {i, overlap};
  }
  return best;
}

/// For each detection the labelled box that it matches.
std::vector<Nearest> matches_of(const ComparedBoxes& boxes, bool of_class) {
  std::vector<char> is_matched(boxes.labelled.size());
  std::vector<Nearest> result;
  for (const DetectedBox& box : boxes.detected) {
    result.push_back(nearest_box(box, boxes.labelled, matched_overlap, [&](std::size_t i) {
      return is_matched[i] == 0 && (!of_class || boxes.labelled[i].label == box.label);
    }));
    if (result.back().index < is_matched.size()) is_matched[result.back().index] = 1;
  }
  return result;
}

/// The kind of a detection that matches no box, and which it is about.
std::pair<BoxOutcome, Nearest> false_alarm(const DetectedBox& box, const std::vector<LabelledBox>& labelled) {
  const auto any = [](std::size_t) { return true; };
  const auto is_of_class = [&](std::size_t i) { return labelled[i].label == box.label; };
  const Nearest of_any = nearest_box(box, labelled, matched_overlap, any);
  if (of_any.index < labelled.size())
    return {is_of_class(of_any.index) ? BoxOutcome::duplicate : BoxOutcome::wrong_class, of_any};
  const Nearest of_class = nearest_box(box, labelled, near_overlap, is_of_class);
  if (of_class.index < labelled.size()) return {BoxOutcome::wrong_place, of_class};
  return {BoxOutcome::background, {labelled.size(), nearest_box(box, labelled, 0, any).overlap}};
}

}  // namespace

std::vector<JudgedBox> judged_boxes(const Detections& detections, const GroundTruth& truth, std::int64_t classes,
                                    double min_score) {
  const ComparedBoxes boxes(detections, truth, classes, min_score);
  const std::vector<Nearest> matches = matches_of(boxes, true);
  std::vector<char> is_explained(boxes.labelled.size());
  std::vector<JudgedBox> result;
  for (std::size_t i = 0; i < boxes.detected.size(); ++i) {
    const DetectedBox& box = boxes.detected[i];
    const bool is_matched = matches[i].index < boxes.labelled.size();
    if (!is_matched && boxes.is_ignored(box)) continue;
    const auto [outcome, about] =
        is_matched ? std::pair(BoxOutcome::correct, matches[i]) : false_alarm(box, boxes.labelled);
    JudgedBox& judged = result.emplace_back(JudgedBox{outcome, box, std::nullopt, about.overlap});
    if (about.index == boxes.labelled.size()) continue;
    judged.labelled = boxes.labelled[about.index];
    is_explained[about.index] = 1;
  }
  for (std::size_t i = 0; i < boxes.labelled.size(); ++i) {
    if (is_explained[i] != 0) continue;
    double overlap = 0;
    for (const DetectedBox& box : boxes.detected) overlap = std::max(overlap, overlap_of(box, boxes.labelled[i]));
    result.push_back({BoxOutcome::missed, std::nullopt, boxes.labelled[i], overlap});
  }
  return result;
}

void add_confusions(const Detections& detections, const GroundTruth& truth, double min_score, ConfusionMatrix& matrix) {
  const std::int64_t background = matrix.classes() - 1;
  const ComparedBoxes boxes(detections, truth, background, min_score);
  const std::vector<Nearest> matches = matches_of(boxes, false);
  std::vector<std::int64_t> labels, predicted;
  const auto add = [&](std::int64_t label, std::int64_t prediction) {
    labels.push_back(label), predicted.push_back(prediction);
  };
  std::vector<char> is_matched(boxes.labelled.size());
  for (std::size_t i = 0; i < boxes.detected.size(); ++i) {
    const std::size_t match = matches[i].index;
    const bool is_of_box = match < boxes.labelled.size();
    if (is_of_box) is_matched[match] = 1;
    if (is_of_box || !boxes.is_ignored(boxes.detected[i]))
      add(is_of_box ? boxes.labelled[match].label : background, boxes.detected[i].label);
  }
  for (std::size_t i = 0; i < is_matched.size(); ++i)
    if (is_matched[i] == 0) add(boxes.labelled[i].label, background);
  const Shape shape{static_cast<std::int64_t>(labels.size())};
  matrix.add(Tensor::of(shape, predicted), Tensor::of(shape, labels));
}

}  // namespace hearth::train
