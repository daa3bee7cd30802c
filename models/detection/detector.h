// SPDX-License-Identifier: Apache-2.0
// What detectors have in common: outputs for each of many points of an image, their loss, and the boxes they mean.
#pragma once

#include <cstdint>
#include <vector>

#include "core/config/config.h"
#include "core/tensor.h"
#include "ops/boxes/assign.h"

namespace hearth::models {

/// The true boxes of a batch, in pixels of what the model gets.
struct HEARTH_API TrueBoxes {
  BoxList list;
  Tensor classes;  ///< i64 [M]
};

/// The boxes that a detector finds on an image, by descending score.
struct HEARTH_API Detections {
  Tensor boxes;    ///< f32 [n, 4] as corners, within the image
  Tensor scores;   ///< f32 [n], in [0, 1]
  Tensor classes;  ///< i64 [n]
};

struct DetectionOptions {
  double score_threshold = 0.05;       ///< boxes of a lower score are left out; in [0, 1]
  double overlap_threshold = 0.6;      ///< of batched_nms(); in [0, 1]
  std::int64_t level_limit = 1000;     ///< candidates of each feature map, those of the highest scores
  std::int64_t detection_limit = 100;  ///< boxes of an image
};

HEARTH_API void describe(Fields<DetectionOptions>& fields);

/// What a detector derives from, beside nn::Module: its forward(x) maps images [N, H, W, C] to outputs [N, P, numbers].
class HEARTH_API Detector {
 public:
  virtual std::int64_t classes() const = 0;
  /// The loss of outputs for images of this size, a scalar. UsageError, ShapeError, IndexError for what does not fit.
  virtual Tensor loss(const Tensor& outputs, std::int64_t height, std::int64_t width, const TrueBoxes& truth) = 0;
  /// What the outputs for images of this size mean, for each image. Waits for a CUDA device; no gradient.
  virtual std::vector<Detections> detections(const Tensor& outputs, std::int64_t height, std::int64_t width,
                                             const DetectionOptions& options) = 0;

 protected:
  ~Detector() = default;
};

}  // namespace hearth::models
