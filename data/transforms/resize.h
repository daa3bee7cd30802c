// SPDX-License-Identifier: Apache-2.0
// Geometry of images: cropping, flipping, and the antialiased bilinear resize that torchvision and Pillow use.
#pragma once

#include <utility>

#include "data/image/image.h"

namespace hearth::data {

/// Resizes the part `box` of `source` to height x width. A triangle filter as wide as one output pixel (at least one
/// input pixel) weighs the inputs; pixels outside the box play no part. Arithmetic is 22-bit fixed point, rounded after
/// each of the two passes, so the result does not depend on compiler or machine. ShapeError if the box leaves the
/// source or either side is empty.
void resize(const Image& source, Box box, int height, int width, Image& target);
/// The same of a region that was decoded: `target` becomes the window of its sizing, by the sizing's filter. A pixel of
/// which the box covers a part counts in whole. ShapeError where `source` lacks pixels of it.
void resize(const Image& source, const Region& region, Image& target);
/// The same to a shorter side of `side` pixels, the longer one following, rounded down. ShapeError as there, and for a
/// result of more than max_image_pixels.
void resize_shorter_side(const Image& source, Box box, int side, Image& target);
/// Height and width of that result. ShapeError as there.
std::pair<int, int> with_shorter_side(int height, int width, int side);

/// The part `box` of `source`, which may reach outside: there the result is `fill`.
void crop(const Image& source, Box box, std::uint8_t fill, Image& target);

/// Mirrors left and right in place.
void flip_horizontally(Image& image);

}  // namespace hearth::data
