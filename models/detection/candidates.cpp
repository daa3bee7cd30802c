// SPDX-License-Identifier: Apache-2.0
#include "models/detection/candidates.h"

#include <algorithm>

#include "ops/ops.h"

namespace hearth::models {

void Candidates::add_level(const float* scores, const float* boxes, std::int64_t first, std::int64_t end,
                           std::int64_t classes, const DetectionOptions& options) {
  std::vector<std::int64_t> places;
  for (std::int64_t i = first * classes; i < end * classes; ++i)
    if (static_cast<double>(scores[i]) > options.score_threshold) places.push_back(i);
  const auto count = std::min(static_cast<std::int64_t>(places.size()), options.level_limit);
  std::partial_sort(places.begin(), places.begin() + count, places.end(), [&](std::int64_t a, std::int64_t b) {
    return scores[a] != scores[b] ? scores[a] > scores[b] : a < b;
  });
  places.resize(static_cast<std::size_t>(count));
  for (const std::int64_t place : places) {
    const float* const box = boxes + place / classes * 4;
    boxes_.insert(boxes_.end(), box, box + 4);
    scores_.push_back(scores[place]);
    classes_.push_back(place % classes);
  }
}

Detections Candidates::chosen(const DetectionOptions& options) const {
  const auto count = static_cast<std::int64_t>(scores_.size());
  const Tensor boxes = Tensor::of<float>({count, 4}, boxes_), scores = Tensor::of<float>({count}, scores_);
  const Tensor classes = Tensor::of<std::int64_t>({count}, classes_);
  const Tensor kept = batched_nms(boxes, scores, classes, options.overlap_threshold).wait();
  const Tensor first = slice(kept, 0, 0, std::min(kept.size(), options.detection_limit));
  return {index_select(boxes, 0, first), index_select(scores, 0, first), index_select(classes, 0, first)};
}

}  // namespace hearth::models
