// SPDX-License-Identifier: Apache-2.0
// How a camera was held: the orientation that image files carry as EXIF.
#pragma once

#include <cstdint>
#include <span>

#include "data/images/codecs/image.h"

namespace hearth::data {

/// The EXIF orientation of a JPEG, PNG or WebP file, 1 (upright) to 8; 1 where there is none or what is there is
/// broken.
int exif_orientation(std::span<const std::uint8_t> file);

/// How the axes of an upright image lie in the stored one.
struct OrientationAxes {
  bool swapped;     ///< its rows are columns there
  bool from_below;  ///< its first row is the last one there (the last column where they are swapped)
  bool from_right;  ///< its first column is the last one there
};
OrientationAxes axes_of(int orientation);

/// Turns and mirrors the image so that it is upright, as its orientation says; 1 leaves it. Takes the image's size in
/// memory once more. UsageError outside of 1 to 8.
void make_upright(Image& image, int orientation);

}  // namespace hearth::data
