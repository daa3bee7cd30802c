// SPDX-License-Identifier: Apache-2.0
#include "models/detection/candidates.h"

#include <algorithm>

#include "ops/ops.h"

namespace hearth::models {

void Candidates::add_level(const float* scores, const float* boxes, std::int64_t first, std::int64_t end,
                           std::int64_t classes, const DetectionOptions& options) {
  add_best(scores, boxes, {first * classes, end * classes, 1}, classes, options);
}

void Candidates::add_class(const float* scores, const float* boxes, std::int64_t first, std::int64_t end,
                           std::int64_t classes, std::int64_t label, const DetectionOptions& options) {
  add_best(scores, boxes, {first * classes + label, end * classes, classes}, classes, options);
}

void Candidates::add_best(const float* scores, const float* boxes, const Positions& positions, std::int64_t classes,
                          const DetectionOptions& options) {
  std::vector<std::int64_t> best;
  for (std::int64_t i = positions.first; i < positions.end; i += positions.step)
    if (static_cast<double>(scores[i]) > options.score_threshold) best.push_back(i);
  const auto count = std::min(static_cast<std::int64_t>(best.size()), options.level_limit);
  std::partial_sort(best.begin(), best.begin() + count, best.end(), [&](std::int64_t a, std::int64_t b) {
    return scores[a] != scores[b] ? scores[a] > scores[b] : a < b;
  });
  best.resize(static_cast<std::size_t>(count));
  for (const std::int64_t position : best) {
    const float* const box = boxes + position / classes * 4;
    boxes_.insert(boxes_.end(), box, box + 4);
    scores_.push_back(scores[position]);
    classes_.push_back(position % classes);
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

std::vector<Detections> detections_of(const Tensor& scores, const Tensor& boxes,
                                      const std::vector<std::int64_t>& counts, CandidateLimit limit,
                                      const DetectionOptions& options) {
  const Tensor host_scores = scores.contiguous().to(Device{}), host_boxes = boxes.contiguous().to(Device{});
  const auto *const score = host_scores.data<const float>(), *const box = host_boxes.data<const float>();
  const std::int64_t images = scores.dim(0), points = scores.dim(1), classes = scores.dim(2);
  std::vector<Detections> all;
  for (std::int64_t image = 0; image < images; ++image) {
    Candidates candidates;
    std::int64_t first = image * points;
    if (limit == CandidateLimit::of_class)
      for (std::int64_t label = 0; label < classes; ++label)
        candidates.add_class(score, box, first, first + points, classes, label, options);
    else
      for (const std::int64_t count : counts) {
        candidates.add_level(score, box, first, first + count, classes, options);
        first += count;
      }
    all.push_back(candidates.chosen(options));
  }
  return all;
}

}  // namespace hearth::models
