// SPDX-License-Identifier: Apache-2.0
#include "data/images/memory_images.h"

#include <algorithm>
#include <span>
#include <utility>

#include "core/error.h"
#include "core/io/checksum.h"

namespace hearth::data {

MemoryImages::MemoryImages(std::string source, ImageShape shape, std::vector<std::uint8_t> pixels,
                           std::vector<std::int32_t> labels, std::vector<std::string> class_names)
    : source_(std::move(source)),
      shape_(shape),
      pixels_(std::move(pixels)),
      labels_(std::move(labels)),
      class_names_(std::move(class_names)) {
  HEARTH_CHECK(DataError, shape.height > 0 && shape.width > 0 && shape.channels > 0, source_, ": images of ", shape,
               " hold nothing");
  HEARTH_CHECK(DataError,
               std::int64_t{shape.height} * shape.width <= max_image_pixels && shape.channels <= max_image_channels,
               source_, ": images of ", shape, "; at most ", max_image_pixels, " pixels of ", max_image_channels,
               " channels are possible");
  const std::size_t image_bytes = static_cast<std::size_t>(shape.height) * static_cast<std::size_t>(shape.width) *
                                  static_cast<std::size_t>(shape.channels);
  HEARTH_CHECK(DataError, pixels_.size() == labels_.size() * image_bytes, source_, ": ", labels_.size(),
               " labels need ", labels_.size() * image_bytes, " bytes of pixels, found ", pixels_.size());
  for (std::size_t i = 0; i < labels_.size(); ++i) {
    HEARTH_CHECK(DataError, labels_[i] >= 0 && static_cast<std::size_t>(labels_[i]) < class_names_.size(), source_,
                 ": the label of sample ", i, " is ", labels_[i], ", outside the ", class_names_.size(), " classes");
  }
}

std::int64_t MemoryImages::label(std::int64_t index) const {
  check_index(index);
  return labels_[static_cast<std::size_t>(index)];
}

std::int64_t MemoryImages::read(std::int64_t index, Image& image) const {
  check_index(index);
  image.reshape(shape_.height, shape_.width, shape_.channels);
  const std::size_t bytes = image.pixels.size();
  std::copy_n(pixels_.data() + static_cast<std::size_t>(index) * bytes, bytes, image.pixels.data());
  return labels_[static_cast<std::size_t>(index)];
}

void MemoryImages::identify(std::int64_t index, Sha256& digest) const {
  check_index(index);
  const std::size_t bytes = pixels_.size() / labels_.size();
  digest.update(std::as_bytes(std::span(pixels_).subspan(static_cast<std::size_t>(index) * bytes, bytes)));
}

}  // namespace hearth::data
