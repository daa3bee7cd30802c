// SPDX-License-Identifier: Apache-2.0
// SSD's loss of class scores.
#pragma once

#include "core/tensor.h"

namespace hearth {

/// The cross entropy of anchors with an object and of the hardest ones without, summed.
///
/// logits [N, P, C] of N images, any floating type; class 0 is the background. labels i32 or i64 [N, P]: the class, 0
/// for background, -1 for anchors that do not count. Of an image's background anchors those of the largest cross
/// entropy count, `ratio` for each anchor with an object, the first of equals. A scalar, f32 or f64 of f64; 0 where no
/// image has an object. The logits get a gradient.
/// ShapeError, DTypeError, DeviceError; IndexError for other labels; UsageError unless ratio is finite and at least 0.
/// Source: Liu et al., "SSD" (2016), as torchvision's.
HEARTH_API Tensor multibox_loss(const Tensor& logits, const Tensor& labels, double ratio = 3);

}  // namespace hearth
