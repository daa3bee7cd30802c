// SPDX-License-Identifier: Apache-2.0
// RandAugment: a few changes of an image, drawn evenly from a list, all of one strength.
#pragma once

#include <cstdint>
#include <vector>

#include "core/random.h"
#include "data/images/codecs/image.h"
#include "data/images/transforms/transform_options.h"

namespace hearth::data {

/// The list of the paper.
enum class AugmentOp {
  identity,
  auto_contrast,
  equalize,
  rotate,
  solarize,
  color,
  posterize,
  contrast,
  brightness,
  sharpness,
  shear_x,
  shear_y,
  translate_x,
  translate_y,
};
constexpr int augment_ops = 14;

/// How strong a change is, in its own unit: degrees counter-clockwise (rotate), the least value that is inverted
/// (solarize), bits kept (posterize), a factor (color, contrast, brightness, sharpness), a slope (shear_x, shear_y), a
/// part of the side (translate_x, translate_y). `level` 0 to 10; `mirrored` takes the other direction.
double augment_strength(AugmentOp op, double level, bool increasing, bool mirrored);

/// One change, in place; `scratch` is overwritten. Images of 1 or 3 channels (ShapeError); color leaves grey alone.
/// What moves in from outside is `fill`, a value a channel. Agrees with Pillow to a rounding.
void apply_augment_op(Image& image, Image& scratch, AugmentOp op, double strength,
                      const std::vector<std::uint8_t>& fill);

/// As many changes as asked for, drawn with replacement.
/// Source: Cubuk et al., "RandAugment: Practical Automated Data Augmentation with a Reduced Search Space" (2020).
void rand_augment(Image& image, Image& scratch, const RandAugment& options, const std::vector<std::uint8_t>& fill,
                  Random& random);

}  // namespace hearth::data
