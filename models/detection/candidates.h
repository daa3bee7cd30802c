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
  /// Takes in a class of all points. Those above the score threshold are candidates, up to the limit likewise.
  void add_class(const float* scores, const float* boxes, std::int64_t first, std::int64_t end, std::int64_t classes,
                 std::int64_t label, const DetectionOptions& options);
  /// What is left after the suppression of overlaps within each class.
  Detections chosen(const DetectionOptions& options) const;

 private:
  /// Those of scores: first, first + step, ... before end.
  struct Positions {
    std::int64_t first, end, step;
  };
  void add_best(const float* scores, const float* boxes, const Positions& positions, std::int64_t classes,
                const DetectionOptions& options);
  std::vector<float> boxes_, scores_;
  std::vector<std::int64_t> classes_;
};

/// Which boxes DetectionOptions::level_limit is for.
enum class CandidateLimit : std::uint8_t { of_map, of_class };

/// What scores [N, P, classes] and boxes [N, P, 4] of all points mean for each image. `counts` has the points of each
/// map. Waits for a CUDA device.
std::vector<Detections> detections_of(const Tensor& scores, const Tensor& boxes,
                                      const std::vector<std::int64_t>& counts, CandidateLimit limit,
                                      const DetectionOptions& options);

}  // namespace hearth::models
