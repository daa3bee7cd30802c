// SPDX-License-Identifier: Apache-2.0
// What a resize needs of an image, so that no more of it is decoded.
#pragma once

#include <cstdint>
#include <functional>

#include "core/export.h"

namespace hearth::data {

/// A rectangle of whole pixels.
struct Box {
  int top = 0;
  int left = 0;
  int height = 0;
  int width = 0;
  bool operator==(const Box&) const = default;
};

/// A rectangle in pixels and fractions of them.
struct Area {
  double top = 0;
  double left = 0;
  double height = 0;
  double width = 0;
};

/// How a resize weighs inputs by their distance from the output's centre. Each filter is as wide as the output pixel
/// where that is larger than an input pixel, so that reductions are antialiased.
enum class ResizeFilter : std::uint8_t {
  bilinear,  ///< falls linearly to 0 at one pixel, as Pillow's and torchvision's
  bicubic,   ///< Keys' cubic with a = -0.5, to two pixels, as Pillow's
  area,      ///< the mean of what the output pixel covers; enlargements are bilinear
};

/// A resize of a box of an image, of whose result a window is needed.
struct Sizing {
  Box box{};       ///< of the image
  int height = 0;  ///< to which the box is resized
  int width = 0;
  Box window{};  ///< of the result
  ResizeFilter filter = ResizeFilter::bilinear;
  /// Whether a JPEG may be decoded at 1/8, 1/4 or 1/2 of its size, where the box has at least so many times the rows
  /// and the columns of the result.
  bool scaled_decoding = false;
  bool mirrored = false;  ///< whether left and right of the result change places
};

/// All of an image, as it is.
inline Sizing unchanged(int height, int width) { return {{0, 0, height, width}, height, width, {0, 0, height, width}}; }

/// Chooses how an image is resized, from its height and width when it is upright. May be called for several images, of
/// which the last one counts.
using ChooseSizing = std::function<Sizing(int height, int width)>;

/// What a reader gives beside the pixels that it has decoded.
struct Region {
  Sizing sizing{};  ///< as chosen
  Area area{};      ///< where the box of `sizing` lies, in pixels of what was decoded; its unneeded margins may not
  int height = 0;   ///< of the whole image, upright
  int width = 0;
  int orientation = 1;  ///< EXIF's, which was applied
};

/// The inputs [begin, end) that some outputs of an axis need.
struct Span {
  int begin = 0;
  int end = 0;
};
/// Of outputs [first, first + count), where `extent` inputs from `begin` on are resized to `size`. Inputs outside of
/// these play no part, but one that is covered in part counts in whole.
HEARTH_API Span inputs_of(double begin, double extent, int size, int first, int count, ResizeFilter filter);

/// How many times smaller a JPEG is decoded for a resize: 1, 2, 4 or 8.
HEARTH_API int reduction_of(const Sizing& sizing);

}  // namespace hearth::data
