// SPDX-License-Identifier: Apache-2.0
#include "data/images/image_dataset.h"

#include <algorithm>
#include <utility>

#include "core/error.h"
#include "data/images/codecs/decode.h"
#include "data/images/transforms/resize.h"
#include "data/loading/stages.h"

namespace hearth::data {

namespace {
/// The first label from `index` on, around the end, that try_read(index) gives.
template <class Try>
std::int64_t first_readable(const ImageDataset& dataset, std::int64_t index, const Try& try_read) {
  for (std::int64_t tries = 0; tries < dataset.size(); ++tries)
    if (const auto label = try_read((index + tries) % dataset.size())) return *label;
  throw DataError(join_text(dataset.source(), ": none of the ", dataset.size(), " samples can be decoded"));
}
}  // namespace

std::int64_t ImageDataset::read_from(std::int64_t index, Image& image) const {
  check_index(index);
  return first_readable(*this, index, [&](std::int64_t i) { return try_read(i, image); });
}

std::optional<std::int64_t> ImageDataset::try_read_region(std::int64_t index, const ChooseSizing& choose, Image& image,
                                                          Region& region) const {
  const std::optional<std::int64_t> label = try_read(index, image);
  if (label) region = region_of_whole(image, choose);
  return label;
}

std::int64_t ImageDataset::read_region(std::int64_t index, const ChooseSizing& choose, Image& image,
                                       Region& region) const {
  check_index(index);
  return first_readable(*this, index, [&](std::int64_t i) { return try_read_region(i, choose, image, region); });
}

void ImageDataset::shrink(Image& image) const {
  if (shrinks_to() == 0 || std::min(image.height, image.width) <= shrinks_to()) return;
  const StageScope stage(Stage::augment);
  // No memory of a thread's own: it would stay as large as the largest file.
  Image shrunk;
  resize_shorter_side(image, {0, 0, image.height, image.width}, shrinks_to(), shrunk);
  image = std::move(shrunk);
}

Sample ImageDataset::get(std::int64_t index) const {
  Sample sample;
  sample.label = read(index, sample.image);
  return sample;
}

}  // namespace hearth::data
