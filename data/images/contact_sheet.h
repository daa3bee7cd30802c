// SPDX-License-Identifier: Apache-2.0
// Many images of a dataset in one, to look at them at once.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "data/images/image_dataset.h"

namespace hearth::data {

/// Samples spread evenly over a set of `size`: their indices, at most `most`.
std::vector<std::int64_t> spread_samples(std::int64_t size, std::int64_t most);

/// The samples in rows from the top left, each shrunk or enlarged to fit a square of `side` pixels, on grey. RGB. A
/// sample that cannot be read is a red square. UsageError for no samples, or a sheet beyond max_image_pixels.
Image contact_sheet(const ImageDataset& images, const std::vector<std::int64_t>& samples, int side);
/// The same of what `read(sample, image)` gives, called by several threads at once.
Image contact_sheet(const std::vector<std::int64_t>& samples, int side,
                    const std::function<void(std::int64_t sample, Image& image)>& read);

}  // namespace hearth::data
