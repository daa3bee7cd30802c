// SPDX-License-Identifier: Apache-2.0
// What a set of images with masks holds, and a picture of it: behind `hearth data inspect` and `hearth data verify`.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/io/json_text.h"
#include "data/masks/mask_dataset.h"

namespace hearth::data {

/// The report on a set, as JSON and as lines for people.
struct MaskInspection {
  Json json;
  std::string text;
  std::int64_t problems = 0;  ///< images that cannot be read, or whose masks are faulty
};

/// Decodes up to `most` images and masks spread evenly over the set (negative: all of them), and counts their pixels by
/// class.
MaskInspection inspect_masks(const MaskDataset& dataset, std::int64_t most = 256);

/// The samples in rows from the top left, each fitted into a square of `side` pixels with its mask drawn over it. RGB.
/// A sample that cannot be read is a red square. Errors as of contact_sheet().
Image mask_sheet(const MaskDataset& dataset, const std::vector<std::int64_t>& samples, int side);

}  // namespace hearth::data
