// SPDX-License-Identifier: Apache-2.0
// How images become the inputs of a model.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <vector>

#include "data/images/codecs/sizing.h"

namespace hearth::data {

/// Cubuk et al., "RandAugment" (2020): a few changes of an image, drawn evenly from a list, all of one strength.
/// The scale of strengths is timm's, not torchvision's. Defaults as timm's "rand-m9-mstd0.5-inc1", but for the number
/// of changes and the list they are drawn from: timm's has no identity, and invert and solarize-add. Posterize keeps a
/// bit at least, where timm's makes the image one colour.
struct RandAugment {
  int ops = 0;               ///< changes drawn for each image, one after another; 0 turns it off
  double magnitude = 9;      ///< mean strength, 0 to 10
  double spread = 0.5;       ///< standard deviation of the strength, which stays within 0 to 10
  double probability = 0.5;  ///< that a drawn change is applied
  bool increasing =
      true;  ///< whether posterize, solarize and the four enhancements also grow stronger with the magnitude
};

/// A box of random area and aspect ratio, resized to the image size.
/// Source: Szegedy et al., "Going Deeper with Convolutions" (2015); defaults as in torchvision.
struct RandomResizedCrop {
  double scale_min = 0.08;  ///< least part of the image's area
  double scale_max = 1.0;
  double ratio_min = 0.75;  ///< least width / height
  double ratio_max = 4.0 / 3.0;
};

/// Factors are uniform in [1 - x, 1 + x] (hue: shift in [-x, x] of a full turn), applied in random order. 0 turns one
/// off.
struct ColorJitter {
  double brightness = 0;
  double contrast = 0;
  double saturation = 0;
  double hue = 0;
};

/// A random box of the normalised image is set to 0, the mean. Source: Zhong et al., "Random Erasing" (2020).
struct RandomErasing {
  double probability = 0;
  double scale_min = 0.02;
  double scale_max = 0.33;
  double ratio_min = 0.3;
  double ratio_max = 3.3;
};

/// What becomes of an image that is no square, where no random box of it is taken.
enum class Fit {
  crop,     ///< the shorter side is resized to the input's, and the centre taken
  pad,      ///< the longer side is resized to the input's, with even margins along the other
  stretch,  ///< both sides are resized to the input's
};

/// A rotation, scale, shear and shift about the centre, each uniform.
struct RandomAffine {
  double rotation = 0;                    ///< degrees, in [-x, x]
  std::array<double, 2> scale{1.0, 1.0};  ///< least and greatest factor
  double shear = 0;                       ///< degrees along each axis, in [-x, x]
  double translation = 0;                 ///< share of the side along each axis, in [-x, x]
};

/// How training moves images with boxes, beside what TransformOptions has for all images.
struct BoxTransformOptions {
  /// A random part that overlaps a box by a random least IoU. Source: Liu et al., "SSD" (2016).
  bool iou_crop = false;
  double expand = 1;  ///< greatest side of a canvas of the mean colour around the image, in sides; 1 turns it off
  double expand_probability = 0.5;
  std::array<double, 2> scale_jitter{1.0, 1.0};  ///< least and greatest factor of the fitted size
  RandomAffine affine{};
  /// Probability that four images around a random centre become one. Source: Ge et al., "YOLOX" (2021).
  double mosaic = 0;
  double mixup = 0;               ///< probability that another image is blended in at even shares; source as of mosaic
  std::int64_t close_mosaic = 0;  ///< last epochs without mosaic and mixup
  double min_visibility = 0.1;    ///< boxes of which a smaller share of the area is left are dropped
};

/// How images become inputs. The random parts apply to training only.
struct TransformOptions {
  int image_size = 0;                            ///< side of the square input; 0 keeps the set's size
  Fit fit = Fit::crop;                           ///< how an image becomes that square
  ResizeFilter filter = ResizeFilter::bilinear;  ///< of every resize
  /// JPEGs are decoded at 1/2, 1/4 or 1/8 of their size where at least so many times the pixels of the input are taken.
  bool scaled_decoding = true;
  /// Evaluation by Fit::crop, where training uses random_resized_crop: the centre image_size of a shorter side of
  /// image_size / eval_crop.
  double eval_crop = 0.875;
  bool random_resized_crop = false;  ///< training takes a random box instead
  RandomResizedCrop crop{};
  int padded_crop = 0;           ///< padding on each side before a random crop of the original size
  bool horizontal_flip = false;  ///< mirror every other image
  RandAugment rand_augment{};
  /// What lies outside an image, from black at 0 to white at 1; else black, and the mean for rand_augment.
  std::optional<double> fill{};
  ColorJitter color_jitter{};
  RandomErasing erasing{};
  BoxTransformOptions boxes{};  ///< of images with boxes
  std::vector<double> mean{};   ///< of each channel, pixels in 0..1; one value serves all channels; empty means 0
  std::vector<double> std{};    ///< as mean; empty means 1
};

}  // namespace hearth::data
