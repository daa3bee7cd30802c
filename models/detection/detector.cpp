// SPDX-License-Identifier: Apache-2.0
#include "models/detection/detector.h"

namespace hearth::models {

void describe(Fields<DetectionOptions>& f) {
  f.number("score_threshold", &DetectionOptions::score_threshold, {.min = 0, .max = 1},
           "Boxes of a lower score are left out.");
  f.number("overlap_threshold", &DetectionOptions::overlap_threshold, {.min = 0, .max = 1},
           "Of two boxes of a class that overlap by more than this (intersection over union) one is left out.");
  f.integer("level_limit", &DetectionOptions::level_limit, {.min = 1, .max = 1 << 20},
            "Boxes of each feature map that are compared, those of the highest scores.");
  f.integer("detection_limit", &DetectionOptions::detection_limit, {.min = 1, .max = 1 << 20}, "Boxes of an image.");
}

}  // namespace hearth::models
