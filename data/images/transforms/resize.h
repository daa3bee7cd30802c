// SPDX-License-Identifier: Apache-2.0
// Geometry of images: cropping, flipping, and the antialiased resizes that torchvision and Pillow use.
#pragma once

#include <utility>

#include "data/images/codecs/image.h"
#include "data/images/codecs/sizing.h"

namespace hearth::data {

/// Makes `target` the window of a resize, by the filter of its sizing; pixels outside of the box play no part, but one
/// of which it covers a part counts in whole. Weights have 14 bits or more, values between the two passes 6 bits behind
/// the point; all arithmetic is in integers, so the result does not depend on compiler or machine, and is Pillow's
/// within a level. ShapeError where `source` lacks pixels of the region.
void resize(const Image& source, const Region& region, Image& target);
/// Whether a region is taken as it is, without a resize.
bool keeps_pixels(const Region& region);
/// As resize(), into memory for the window's pixels; false, and nothing done, where keeps_pixels().
bool resize_into(const Image& source, const Region& region, std::uint8_t* target);
/// Resizes the part `box` of `source` to height x width, bilinearly. ShapeError if the box leaves the source or either
/// side is empty.
void resize(const Image& source, Box box, int height, int width, Image& target);
/// The same to a shorter side of `side` pixels, the longer one following, rounded down. ShapeError as there, and for a
/// result of more than max_image_pixels.
void resize_shorter_side(const Image& source, Box box, int side, Image& target);
/// Height and width of that result. ShapeError as there.
std::pair<int, int> with_shorter_side(int height, int width, int side);

/// The part `box` of `source`, which may reach outside: there the result is `fill`.
void crop(const Image& source, Box box, std::uint8_t fill, Image& target);

class Transforms;
/// Whether Transforms::augment() of this region of an image does no more than resize() does.
bool resizes_only(const Transforms& transforms, const Region& region, int channels);

/// Mirrors left and right in place.
void flip_horizontally(Image& image);

}  // namespace hearth::data
