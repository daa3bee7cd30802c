// SPDX-License-Identifier: Apache-2.0
// Images of one dataset in the size and channels of another one's.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "data/images/image_dataset.h"

namespace hearth::data {

/// Shrinks an image as the dataset does and brings it to the channels and size that the set's images have: one channel
/// by luma (ITU-R BT.601), three from one as equal ones, the size by bilinear resize. DataError, naming `name`, for
/// other channels.
void conform(Image& image, const ImageDataset& dataset, const std::string& name);

/// try_read() of another set's image, which is then conformed.
std::optional<std::int64_t> read_conformed(const ImageDataset& images, std::int64_t index, const ImageDataset& dataset,
                                           Image& image);
/// try_read_region() of another set's image, conformed. Where conforming neither shrinks nor resizes it nor makes it
/// grey, no more of it is decoded than the resize needs: one that the dataset has too becomes what it is there.
std::optional<std::int64_t> read_conformed(const ImageDataset& images, std::int64_t index, const ImageDataset& dataset,
                                           const ChooseSizing& choose, Image& image, Region& region);

}  // namespace hearth::data
