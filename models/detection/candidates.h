// SPDX-License-Identifier: Apache-2.0
// Boxes of an image that may be detections.
#pragma once

#include <cstdint>
#include <vector>

#include "models/detection/detector.h"

namespace hearth::models {

class Candidates {
 public:
  /// Takes in points [first, end) of a level: scores [.., classes] and boxes [.., 4] of all points on the host. Each
  /// class of a point above the score threshold is a candidate, up to the level's limit by descending score, the first
  /// of equals.
  void add_level(const float* scores, const float* boxes, std::int64_t first, std::int64_t end, std::int64_t classes,
                 const DetectionOptions& options);
  /// What is left after the suppression of overlaps within each class.
  Detections chosen(const DetectionOptions& options) const;

 private:
  std::vector<float> boxes_, scores_;
  std::vector<std::int64_t> classes_;
};

}  // namespace hearth::models
