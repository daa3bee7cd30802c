// SPDX-License-Identifier: Apache-2.0
// The one list of functions of single boxes, and of boxes in pairs. A row makes the kernels for both devices; its
// arithmetic is the functor of the same name in box_functors.h.
#pragma once

// clang-format off
#define HEARTH_BOX_FUNCTIONS(row) \
  row(convert_boxes)    row(box_area)        row(clip_boxes)       \
  row(iou)              row(giou)            row(diou)             row(ciou) \
  row(encode_deltas)    row(decode_deltas)   row(encode_distances) row(decode_distances)
// clang-format on

namespace hearth::kernels {

enum class BoxFunction {
#define HEARTH_LIST_BOXES(name) name,
  HEARTH_BOX_FUNCTIONS(HEARTH_LIST_BOXES)
#undef HEARTH_LIST_BOXES
};

}  // namespace hearth::kernels
