// SPDX-License-Identifier: Apache-2.0
// What a set of images with boxes holds, and a picture of it: behind `hearth data inspect` and `hearth data verify`.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/io/json_text.h"
#include "data/boxes/box_dataset.h"

namespace hearth::data {

/// The report on a set, as JSON and as lines for people.
struct BoxInspection {
  Json json;
  std::string text;
  std::int64_t problems = 0;  ///< images that cannot be read or have faulty labels
};

/// Counts images, those without boxes, and boxes by class and size (COCO's: small below 32 x 32 pixels of area, large
/// above 96 x 96), and decodes up to `most` images spread evenly over the set (negative: all of them). Sizes of boxes
/// in shares of their image are those of the images that were decoded.
BoxInspection inspect_boxes(const BoxDataset& dataset, std::int64_t most = 256);

/// The samples in rows from the top left, each fitted into a square of `side` pixels with its boxes drawn, of a colour
/// by class; of a crowd dashed. RGB. A sample that cannot be read is a red square. Errors as of contact_sheet().
Image box_sheet(const BoxDataset& dataset, const std::vector<std::int64_t>& samples, int side);

}  // namespace hearth::data
