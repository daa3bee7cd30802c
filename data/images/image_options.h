// SPDX-License-Identifier: Apache-2.0
// What the configuration of every dataset of images may say.
#pragma once

#include <array>
#include <concepts>

#include "core/config/config.h"
#include "data/dataset.h"
#include "data/images/transforms/transform_options.h"
#include "data/options.h"

namespace hearth::data {

/// "augment": sizing and augmentation. transform_options() puts together what is spelled otherwise here.
struct AugmentOptions : TransformOptions {
  std::array<double, 2> scale{0.08, 1.0};        ///< of crop
  std::array<double, 2> ratio{0.75, 4.0 / 3.0};  ///< of crop
  double erasing_probability = 0;
  double mixup = 0;
  double cutmix = 0;
};

struct ImageOptions {
  AugmentOptions augment{};
  ChannelStatistics normalize{};
};

/// The options of a dataset of images.
struct ImageDataOptions : DataOptions, ImageOptions {};

HEARTH_API void describe(Fields<ColorJitter>& fields);
HEARTH_API void describe(Fields<RandAugment>& fields);
HEARTH_API void describe(Fields<AugmentOptions>& fields);
HEARTH_API void describe(Fields<ChannelStatistics>& fields);

/// What these say of a model's input.
HEARTH_API TransformOptions transform_options(const ImageOptions& options);

/// The fields of ImageDataOptions.
template <std::derived_from<ImageDataOptions> T>
void describe_images(Fields<T>& fields) {
  fields.object("augment", &ImageOptions::augment, "Size of the images and random changes in training.");
  fields.object("normalize", &ImageOptions::normalize, "Inputs are (pixel / 255 - mean) / std.");
  describe_common(fields);
}

}  // namespace hearth::data
