// SPDX-License-Identifier: Apache-2.0
#include "data/boxes/box_dataset.h"

#include <algorithm>
#include <utility>

#include "core/error.h"
#include "core/io/checksum.h"
#include "data/images/codecs/decode.h"
#include "data/source/source_bytes.h"

namespace hearth::data {

BoxDataset::BoxDataset(AnnotatedImages annotated, std::int64_t decode_bytes)
    : annotated_(std::move(annotated)), decode_bytes_(decode_bytes) {
  HEARTH_CHECK(UsageError, annotated_.category_ids.size() == annotated_.class_names.size(), annotated_.source, ": ",
               annotated_.category_ids.size(), " category ids of ", annotated_.class_names.size(), " classes");
  const auto boxes = static_cast<std::int64_t>(annotated_.boxes.size());
  for (const AnnotatedImage& image : annotated_.images)
    HEARTH_CHECK(UsageError, image.first_box >= 0 && image.boxes >= 0 && image.boxes <= boxes - image.first_box,
                 annotated_.source, ": the boxes of ", image.file, " are none of the ", boxes, " that there are");
  for (const BoxAnnotation& box : annotated_.boxes)
    HEARTH_CHECK(UsageError, box.label >= 0 && box.label < classes(), annotated_.source, ": the label ", box.label,
                 " is none of the ", classes(), " classes");
}

std::shared_ptr<const BoxDataset> BoxDataset::subset(const std::vector<std::int64_t>& indices) const {
  AnnotatedImages some{.source = annotated_.source,
                       .folder = annotated_.folder,
                       .class_names = annotated_.class_names,
                       .category_ids = annotated_.category_ids,
                       .normalized = annotated_.normalized,
                       .warnings = annotated_.warnings};
  for (const std::int64_t index : indices) {
    check_index(index);
    const auto boxes = annotated_.boxes_of(static_cast<std::size_t>(index));
    const auto place = static_cast<std::int64_t>(some.images.size());
    some.images.push_back(annotated_.images[static_cast<std::size_t>(index)]);
    some.images.back().first_box = static_cast<std::int64_t>(some.boxes.size());
    some.boxes.insert(some.boxes.end(), boxes.begin(), boxes.end());
    const auto fault = annotated_.faults.find(index);
    if (fault != annotated_.faults.end()) some.faults.emplace(place, fault->second);
  }
  return std::make_shared<BoxDataset>(std::move(some), decode_bytes_);
}

std::string BoxDataset::sample_name(std::int64_t index) const {
  check_index(index);
  return annotated_.images[static_cast<std::size_t>(index)].file;
}

void BoxDataset::identify(std::int64_t index, Sha256& digest) const {
  digest.update(join_text(sample_name(index), '\n'));
  for (const BoxAnnotation& box : annotated_.boxes_of(static_cast<std::size_t>(index))) {
    digest.update(std::as_bytes(std::span(box.corners)));
    digest.update(std::as_bytes(std::span(&box.area, 1)));
    digest.update(join_text(box.label, ' ', box.crowd, ' ', box.ignored, '\n'));
  }
}

void BoxDataset::check_size(std::int64_t index, const Region& region) const {
  const AnnotatedImage& image = annotated_.images[static_cast<std::size_t>(index)];
  if (image.width == 0) return;  // labels in shares of the sides mean the image upright, as YOLO's programs do
  const std::string name = annotated_.path_of(static_cast<std::size_t>(index));
  const bool fits = image.width == region.width && image.height == region.height;
  if (region.orientation != 1) {
    const bool turns_sides = region.orientation >= 5;
    const bool fits_as_stored = turns_sides ? image.width == region.height && image.height == region.width : fits;
    HEARTH_CHECK(DataError, !fits_as_stored, name, ": its EXIF orientation is ", region.orientation, ", and ",
                 annotated_.source, " gives ", image.width, " x ", image.height,
                 " pixels, so that boxes may mean the pixels as they lie in the file, not the upright image; write the "
                 "image without that orientation, turned to how the boxes lie");
  }
  HEARTH_CHECK(DataError, fits, name, ": has ", region.width, " x ", region.height, " pixels, and ", annotated_.source,
               " says ", image.width, " x ", image.height, "; boxes mean other pixels than these");
}

void BoxDataset::read_region(std::int64_t index, const ChooseSizing& choose, Image& image, Region& region) const {
  check_index(index);
  const auto fault = annotated_.faults.find(index);
  HEARTH_CHECK(DataError, fault == annotated_.faults.end(), fault->second);
  const std::string path = annotated_.path_of(static_cast<std::size_t>(index));
  // Each thread keeps the memory of the compressed bytes.
  thread_local std::vector<std::uint8_t> bytes;
  read_bytes(*opener_.open(path), bytes, image_limit);
  region = decode_region(bytes, path, choose, image, decode_bytes_);
  check_size(index, region);
}

void BoxDataset::read(std::int64_t index, Image& image) const {
  Region region;
  read_region(index, unchanged, image, region);
}

std::vector<BoxAnnotation> BoxDataset::boxes_in_pixels(std::int64_t index, int height, int width) const {
  check_index(index);
  const auto all = annotated_.boxes_of(static_cast<std::size_t>(index));
  std::vector<BoxAnnotation> boxes(all.begin(), all.end());
  if (!annotated_.normalized) return boxes;
  for (BoxAnnotation& box : boxes) {
    for (std::size_t i = 0; i < 4; ++i) box.corners[i] *= i % 2 == 0 ? width : height;
    box.area = (box.corners[2] - box.corners[0]) * (box.corners[3] - box.corners[1]);
  }
  return boxes;
}

}  // namespace hearth::data
