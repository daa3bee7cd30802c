// SPDX-License-Identifier: Apache-2.0
// Folders of images and of their masks: which lie where, and which mask is whose.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "core/export.h"
#include "data/dataset.h"

namespace hearth::data {

/// What images and masks are called.
struct MaskNames {
  std::string images = "images";  ///< the folder of images
  std::string masks = "masks";    ///< the folder of masks
  std::string suffix{};           ///< what a mask's name has behind the image's
};

/// The folders of a split; empty where there is no such split.
struct MaskPart {
  std::string images, masks;
};
struct MaskParts {
  MaskPart train, valid, test;
};

/// The folders below a root: images and masks, each perhaps with folders of splits in it, or folders of splits with
/// images and masks in them. DataError, with what would do, for another layout.
HEARTH_API MaskParts find_mask_folders(const std::string& root, const MaskNames& names);

/// An image's name below its folder, and the paths of both files.
struct MaskedFile {
  std::string name, image, mask;
};
struct MaskedFiles {
  std::string source;  ///< the folder of images
  std::vector<MaskedFile> files{};
  std::map<std::int64_t, std::string> faults{};  ///< why images cannot be used, where that is to be passed over
  Warnings warnings{};
};

/// Each image of a split with its mask, which has the same name but for the suffix and the ending. DataError where none
/// has a mask, and for two images or masks of one name; also for an image without a mask and a mask without an image,
/// unless such are to be passed over: then the image has a fault, and the mask is warned of.
HEARTH_API MaskedFiles pair_masks(const MaskPart& part, const MaskNames& names, OnFault on_fault);

}  // namespace hearth::data
