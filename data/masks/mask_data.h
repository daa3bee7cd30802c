// SPDX-License-Identifier: Apache-2.0
// The dataset "masks" of run configurations.
#pragma once

#include <array>
#include <memory>
#include <string>

#include "data/images/codecs/decode.h"
#include "data/images/image_options.h"
#include "data/masks/mask_classes.h"
#include "data/masks/mask_folder.h"
#include "data/registry.h"

namespace hearth::data {

class MaskDataset;

/// "augment" of images with masks.
struct MaskAugment {
  int image_size = 256;
  Fit fit = Fit::pad;
  ResizeFilter filter = ResizeFilter::bilinear;
  bool scaled_decoding = true;
  bool random_resized_crop = false;
  std::array<double, 2> scale{0.25, 1.0};
  std::array<double, 2> ratio{0.75, 4.0 / 3.0};
  int padded_crop = 0;
  bool flip = false;
  double fill = 114.0 / 255;
  ColorJitter color_jitter{};
};
HEARTH_API void describe(Fields<MaskAugment>& fields);

struct MaskData : DataOptions, MaskNames, MaskCode {
  std::string path;
  MaskAugment augment{};
  ChannelStatistics normalize{};
  std::int64_t decode_mb = default_decode_bytes >> 20;
};
HEARTH_API void describe(Fields<MaskData>& fields);

/// The splits of a folder; null for those that it has not.
struct MaskSplits {
  std::shared_ptr<const MaskDataset> train, valid, test;
};
/// Those of another folder than the options' path. ConfigError, DataError and FileError as MaskClasses,
/// find_mask_folders() and pair_masks().
HEARTH_API MaskSplits masks_at(const MaskData& options, const std::string& path);
/// Errors as of masks_at(); DataError too for a training split whose masks have the values 0 and 255 alone, where 255
/// would be ignored.
HEARTH_API OpenedData open_masks(const MaskData& options, Opening opening);

}  // namespace hearth::data
