// SPDX-License-Identifier: Apache-2.0
// Which box of an image each point, or each anchor, of a detector's feature maps is to predict.
#pragma once

#include <cstdint>

#include "core/cpu/stream.h"
#include "core/cuda/stream.h"
#include "core/tensor.h"
#include "ops/boxes/assign_rule.h"

namespace hearth {

/// The boxes of a batch of images, one image after the other. Boxes behind those of the last image are spare.
struct HEARTH_API BoxList {
  Tensor boxes;      ///< [M, 4] as corners
  Tensor counts;     ///< i64 [N]: how many each image has; M altogether, or fewer
  Tensor ignored{};  ///< bool [M], or absent: boxes that are no targets, and of which no point is background either
};

/// The box that each point is to predict, by FCOS's rule: i64 [N, P], the index of a box of the list, or
/// background_point, or ignored_point.
///
/// A point is the centre of an anchor, [P, 4]. A box qualifies if the point is inside it, within `radius` sides of the
/// anchor from its centre along both axes, and if the largest distance to its sides is inside the point's reach,
/// [P, 2]: above the first number and below the second. The smallest box that qualifies is chosen, the first of equals.
/// Anchors, reach and boxes are all f32 or all f64. One launch for any number of images and boxes. No gradient.
/// UsageError, ShapeError, DTypeError, DeviceError; IndexError for counts that add up to more than M, on a CUDA device
/// when the host next waits. Source: Tian et al., "FCOS" (2019), as torchvision's.
HEARTH_API Tensor assign_points(const Tensor& anchors, const Tensor& reach, const BoxList& list, double radius = 1.5);

struct AnchorRule {
  double foreground = 0.5;  ///< the least overlap (intersection over union) for which an anchor gets its box
  double background = 0.4;  ///< below it an anchor is background; from it to `foreground` it is ignored
  BestAnchors best = BestAnchors::each;
};

/// The box that each anchor is to predict, the one that it overlaps most, the first of equals: i64 [N, P], the index of
/// a box of the list, or background_point, or ignored_point.
///
/// Anchors are [P, 4], the same for all images. A box that overlaps no anchor gets none, unlike in torchvision, where
/// all anchors or the first get it. An anchor that would be background is ignored instead if at least the share
/// `foreground` of its area is in an ignored box. Anchors and boxes are all f32 or all f64. Two launches for any number
/// of images and boxes. No gradient. UsageError unless 0 <= background <= foreground <= 1 and foreground is above 0;
/// else as assign_points(). Source: torchvision's Matcher and SSDMatcher.
HEARTH_API Tensor assign_anchors(const Tensor& anchors, const BoxList& list, const AnchorRule& rule = {});

namespace kernels {

/// The list as kernels take it: contiguous, its counts i64. DTypeError, ShapeError and DeviceError, naming `op`, unless
/// boxes are [M, 4] of the kind of `anchors`, which are [P, 4], counts [N] and ignored [M].
BoxList checked_list(const char* op, const Tensor& anchors, const BoxList& list);

/// y i64 [N, P]. Contiguous.
void assign_points(cpu::Stream&, const Tensor& anchors, const Tensor& reach, const BoxList& list, double radius,
                   const Tensor& y);
void assign_points(cuda::Stream&, const Tensor& anchors, const Tensor& reach, const BoxList& list, double radius,
                   const Tensor& y);
/// The same.
void assign_anchors(cpu::Stream&, const Tensor& anchors, const BoxList& list, const AnchorRule& rule, const Tensor& y);
void assign_anchors(cuda::Stream&, const Tensor& anchors, const BoxList& list, const AnchorRule& rule, const Tensor& y);

}  // namespace kernels
}  // namespace hearth
