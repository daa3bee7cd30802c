// SPDX-License-Identifier: Apache-2.0
// Boxes drawn on images.
#pragma once

#include <array>
#include <cstdint>

#include "core/export.h"
#include "data/images/codecs/image.h"

namespace hearth::data {

/// The outline of a box in pixels of an RGB image, one pixel wide, of a colour by its class; what lies outside is moved
/// to the edge. `is_dashed` for boxes of crowds.
HEARTH_API void draw_box(Image& image, const std::array<double, 4>& corners, std::int64_t label,
                         bool is_dashed = false);

}  // namespace hearth::data
