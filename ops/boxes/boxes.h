// SPDX-License-Identifier: Apache-2.0
// Boxes on images: formats, overlaps, losses, and codes that a detector predicts. A box is four numbers on the last
// axis, in pixels: x0, y0, x1, y1 (two corners) unless a function says otherwise. Any floating type; f16 and bf16 are
// computed in f32, as everything is under autocast. ShapeError unless the last axis is 4, DTypeError, DeviceError and
// UsageError for arguments that do not fit.
#pragma once

#include <array>
#include <cstdint>

#include "core/cpu/stream.h"
#include "core/cuda/stream.h"
#include "core/tensor.h"
#include "ops/boxes/box_table.h"
#include "ops/loss/cross_entropy.h"

namespace hearth {

enum class BoxFormat : std::uint8_t {
  xyxy,    ///< corners: x0, y0, x1, y1
  xywh,    ///< upper left corner, width, height: COCO's files
  cxcywh,  ///< centre, width, height: YOLO's files
};

/// The boxes [..., 4] in another format, of their own type. Gradient.
HEARTH_API Tensor convert_boxes(const Tensor& boxes, BoxFormat from, BoxFormat to);
/// The area of each box: [..., 4] gives [...], f32, or f64 of f64. Negative for one corner on the wrong side. Gradient.
HEARTH_API Tensor box_area(const Tensor& boxes);
/// The boxes with x in [0, width] and y in [0, height], of their own type. The gradient is 0 where a number was cut.
/// UsageError unless height and width are finite and at least 0.
HEARTH_API Tensor clip_boxes(const Tensor& boxes, double height, double width);

/// Intersection over union of each box of a with that of b: [..., 4] of one shape and type give [...], f32, or f64 of
/// f64. Both get gradients, as torchvision's losses have them. `eps` is added to what is divided by; two boxes without
/// area and eps 0 give 0. UsageError for eps below 0. Likewise the three below.
HEARTH_API Tensor iou(const Tensor& a, const Tensor& b, double eps = 1e-7);
/// iou less the share of the smallest box around both that neither covers. In [-1, 1].
/// Source: Rezatofighi et al., "Generalized Intersection over Union" (2019).
HEARTH_API Tensor giou(const Tensor& a, const Tensor& b, double eps = 1e-7);
/// iou less the squared distance of the centres by the squared diagonal of the smallest box around both.
/// Source: Zheng et al., "Distance-IoU Loss" (2019).
HEARTH_API Tensor diou(const Tensor& a, const Tensor& b, double eps = 1e-7);
/// diou less alpha v, where v compares the aspect ratios and alpha = v / (1 - iou + v) gets no gradient.
/// Source: as diou().
HEARTH_API Tensor ciou(const Tensor& a, const Tensor& b, double eps = 1e-7);

/// Overlaps that box_iou() computes, those of the functions above.
enum class BoxOverlap : std::uint8_t { iou, giou, diou, ciou };

/// The overlap of each box of a [..., N, 4] with each of b [..., M, 4]: [..., N, M], f32, or f64 of f64. The leading
/// axes are equal. Boxes without area have iou 0. No gradient: iou() and the others have one.
HEARTH_API Tensor box_iou(const Tensor& a, const Tensor& b, BoxOverlap overlap = BoxOverlap::iou);

struct BoxLossOptions {
  Reduction reduction = Reduction::mean;  ///< over the boxes; the mean of no boxes is 0
  double eps = 1e-7;                      ///< as iou() takes it
};

/// 1 - iou(boxes, targets): a scalar, or [...] for Reduction::none. Both get gradients. Likewise the three below.
HEARTH_API Tensor iou_loss(const Tensor& boxes, const Tensor& targets, const BoxLossOptions& options = {});
/// 1 - giou(boxes, targets).
HEARTH_API Tensor giou_loss(const Tensor& boxes, const Tensor& targets, const BoxLossOptions& options = {});
/// 1 - diou(boxes, targets).
HEARTH_API Tensor diou_loss(const Tensor& boxes, const Tensor& targets, const BoxLossOptions& options = {});
/// 1 - ciou(boxes, targets).
HEARTH_API Tensor ciou_loss(const Tensor& boxes, const Tensor& targets, const BoxLossOptions& options = {});

/// What the deltas of x, y, width and height are multiplied by: 1 / variance. {10, 10, 5, 5} for SSD.
using DeltaWeights = std::array<double, 4>;

/// What a detector is to predict at anchors: the shift of the centre in sides of the anchor, and the logarithm of the
/// ratio of the sides, each times its weight. boxes [..., 4], anchors of the same shape or of its last axes; the result
/// has boxes' shape and type. Boxes and anchors must have an area. No gradient. UsageError unless the weights are
/// finite and above 0. Source: Girshick et al., "Rich feature hierarchies" (2014), as torchvision's BoxCoder.
HEARTH_API Tensor encode_deltas(const Tensor& boxes, const Tensor& anchors, const DeltaWeights& weights = {1, 1, 1, 1});
/// The boxes of encode_deltas(). Sides grow to 62.5 times the anchor's at most. The deltas get a gradient, the anchors
/// none.
HEARTH_API Tensor decode_deltas(const Tensor& deltas, const Tensor& anchors,
                                const DeltaWeights& weights = {1, 1, 1, 1});

/// The distances of a box's left, upper, right and lower side from the anchor's centre, positive inside, in pixels or
/// with `in_sides` in widths and heights of the anchor. Shapes and types as encode_deltas(). No gradient.
/// Source: Tian et al., "FCOS" (2019), as torchvision's BoxLinearCoder.
HEARTH_API Tensor encode_distances(const Tensor& boxes, const Tensor& anchors, bool in_sides = false);
/// The boxes of encode_distances(). The distances get a gradient, the anchors none.
HEARTH_API Tensor decode_distances(const Tensor& distances, const Tensor& anchors, bool in_sides = false);

namespace kernels {

/// What a function is told beside the boxes; box_functors.h says which has what.
using BoxNumbers = std::array<double, 4>;

/// y = the function of each box of a and that of b, which is absent for functions of one box, and repeats where it is
/// shorter. Contiguous, all f32 or all f64.
void map_boxes(cpu::Stream&, BoxFunction, const Tensor& a, const Tensor& b, const BoxNumbers&, const Tensor& y);
void map_boxes(cuda::Stream&, BoxFunction, const Tensor& a, const Tensor& b, const BoxNumbers&, const Tensor& y);
/// da and db from dy; either may be absent.
void map_boxes_grad(cpu::Stream&, BoxFunction, const Tensor& a, const Tensor& b, const BoxNumbers&, const Tensor& dy,
                    const Tensor& da, const Tensor& db);
void map_boxes_grad(cuda::Stream&, BoxFunction, const Tensor& a, const Tensor& b, const BoxNumbers&, const Tensor& dy,
                    const Tensor& da, const Tensor& db);
/// y [batch, n, m]: the overlap of each box of a [batch, n, 4] with each of b [batch, m, 4].
void pair_boxes(cpu::Stream&, BoxFunction, const Tensor& a, const Tensor& b, const BoxNumbers&, const Tensor& y);
void pair_boxes(cuda::Stream&, BoxFunction, const Tensor& a, const Tensor& b, const BoxNumbers&, const Tensor& y);

}  // namespace kernels
}  // namespace hearth
