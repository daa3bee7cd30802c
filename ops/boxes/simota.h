// SPDX-License-Identifier: Apache-2.0
// Which box of an image each point is to predict, chosen by what the points predict so far.
#pragma once

#include "ops/boxes/assign.h"

namespace hearth {

/// What a detector predicts for each point of N images. The logits may be slices of a tensor along its last axis.
struct HEARTH_API PointPredictions {
  Tensor boxes;       ///< [N, P, 4] as corners
  Tensor objectness;  ///< [N, P]: logits of there being an object
  Tensor scores;      ///< [N, P, C]: logits of the classes
};

struct SimotaOptions {
  double radius = 1.5;          ///< of a box's centre region, in sides of a point's anchor
  double overlap_weight = 3.0;  ///< of -log iou in the cost
};

/// Largest ious that are summed for k, and so the most points that a box takes.
inline constexpr int simota_points = 10;

struct HEARTH_API SimotaAssignment {
  Tensor boxes;     ///< i64 [N, P]: the index of a box of the list, or background_point, or ignored_point
  Tensor overlaps;  ///< [N, P], of the boxes' type: iou of the predicted box and that one, 0 without a box
};

/// The box that each point is to predict, by SimOTA.
///
/// A point is the centre of an anchor, [P, 4]. The candidates of an image are the points that are less than `radius`
/// sides of their anchor from the centre of a box along both axes. A candidate and a box of class c cost
/// bce(sqrt(sigmoid(scores) sigmoid(objectness)), one_hot(c)), summed over the classes, + overlap_weight * -log iou,
/// + 1e6 if the point is not near the centre of that box. Each box takes the k cheapest candidates, the first of
/// equals, where k is the sum of its `simota_points` largest ious, rounded down, and at least 1. A point that several
/// boxes take gets the cheapest of all boxes of its image, the first of equals. Other points are background, or ignored
/// inside an ignored box; ignored boxes take no points.
///
/// Anchors, predictions and boxes are all f32 or all f64; classes i64 [M]. On a CUDA device three launches for any
/// number of images and boxes; the memory grows with N * P, not with the boxes. No gradient. UsageError,
/// ShapeError, DTypeError, DeviceError; IndexError for counts that add up to more than M and for classes
/// outside of [0, C), on a CUDA device when the host next waits. Source: Ge et al., "YOLOX" (2021), as Megvii's code at
/// version 0.3.
HEARTH_API SimotaAssignment assign_simota(const Tensor& anchors, const PointPredictions& predicted, const BoxList& list,
                                          const Tensor& classes, const SimotaOptions& options = {});

namespace kernels {

/// boxes i64 and overlaps [N, P]. Contiguous but for the logits, of which a point's lie side by side.
void assign_simota(cpu::Stream&, const Tensor& anchors, const PointPredictions& predicted, const BoxList& list,
                   const Tensor& classes, const SimotaOptions& options, const SimotaAssignment& y);
void assign_simota(cuda::Stream&, const Tensor& anchors, const PointPredictions& predicted, const BoxList& list,
                   const Tensor& classes, const SimotaOptions& options, const SimotaAssignment& y);

}  // namespace kernels
}  // namespace hearth
