// SPDX-License-Identifier: Apache-2.0
#include "data/masks/mask_dataset.h"

#include <algorithm>
#include <utility>

#include "core/error.h"
#include "core/io/checksum.h"
#include "data/images/codecs/decode.h"
#include "data/source/source_bytes.h"

namespace hearth::data {

MaskDataset::MaskDataset(MaskedFiles files, std::shared_ptr<const MaskClasses> classes, std::int64_t decode_bytes)
    : files_(std::move(files)), classes_(std::move(classes)), decode_bytes_(decode_bytes) {
  HEARTH_CHECK(UsageError, classes_ != nullptr, files_.source, ": masks without classes");
  HEARTH_CHECK(UsageError, decode_bytes_ > 0, files_.source, ": decode_bytes is ", decode_bytes_,
               "; give the memory that decoding one file may take");
}

const MaskedFile& MaskDataset::file(std::int64_t index) const {
  check_index(index);
  return files_.files[static_cast<std::size_t>(index)];
}

std::string MaskDataset::sample_name(std::int64_t index) const { return file(index).name; }

void MaskDataset::identify(std::int64_t index, Sha256& digest) const {
  const MaskedFile& of = file(index);
  digest.update(join_text(of.name, '\n'));
  for (const std::string& path : {of.image, of.mask}) {
    const auto entry = path.empty() ? std::nullopt : find_source(path);
    digest.update(join_text(entry ? entry->bytes : 0, '\n'));
  }
}

std::shared_ptr<const MaskDataset> MaskDataset::subset(const std::vector<std::int64_t>& indices) const {
  MaskedFiles some{.source = files_.source, .warnings = files_.warnings};
  for (const std::int64_t index : indices) {
    const auto fault = files_.faults.find(index);
    if (fault != files_.faults.end()) some.faults.emplace(static_cast<std::int64_t>(some.files.size()), fault->second);
    some.files.push_back(file(index));
  }
  return std::make_shared<MaskDataset>(std::move(some), classes_, decode_bytes_);
}

void MaskDataset::check_sizes(const MaskedFile& of, const Region& region, const Image& mask) const {
  const bool fits = mask.width == region.width && mask.height == region.height;
  if (region.orientation != 1) {
    const bool turns_sides = region.orientation >= 5;
    const bool fits_as_stored = turns_sides ? mask.width == region.height && mask.height == region.width : fits;
    HEARTH_CHECK(DataError, !fits_as_stored, of.image, ": its EXIF orientation is ", region.orientation, ", and ",
                 of.mask,
                 " may mean the pixels as they lie in the file, not the upright image; write the image without ",
                 "that orientation, turned to how the mask lies");
  }
  HEARTH_CHECK(DataError, fits, of.mask, ": a mask of ", mask.width, " x ", mask.height, " pixels for ", of.image,
               " of ", region.width, " x ", region.height, "; each pixel of an image needs its own in the mask");
}

std::vector<std::uint8_t> MaskDataset::mask_file(std::int64_t index) const {
  const MaskedFile& of = file(index);
  const auto fault = files_.faults.find(index);
  HEARTH_CHECK(DataError, fault == files_.faults.end(), fault->second);
  std::vector<std::uint8_t> bytes;
  read_bytes(*opener_.open(of.mask), bytes, image_limit);
  return bytes;
}

void MaskDataset::read_region(std::int64_t index, const ChooseSizing& choose, Image& image, Region& region,
                              Image& mask) const {
  const MaskedFile& of = file(index);
  mask = classes_->decode(mask_file(index), of.mask, decode_bytes_);
  // Each thread keeps the memory of the compressed bytes.
  thread_local std::vector<std::uint8_t> bytes;
  read_bytes(*opener_.open(of.image), bytes, image_limit);
  region = decode_region(bytes, of.image, choose, image, decode_bytes_);
  check_sizes(of, region, mask);
}

void MaskDataset::read(std::int64_t index, Image& image, Image& mask) const {
  Region region;
  read_region(index, unchanged, image, region, mask);
}

void resize_mask(const Image& mask, const Sizing& sizing, Image& target) {
  HEARTH_CHECK(ShapeError,
               mask.channels == 1 && sizing.box.top >= 0 && sizing.box.left >= 0 &&
                   sizing.box.top + sizing.box.height <= mask.height &&
                   sizing.box.left + sizing.box.width <= mask.width && sizing.box.height > 0 && sizing.box.width > 0,
               "resize_mask: the box of ", sizing.box.height, " x ", sizing.box.width, " is no part of a mask of ",
               mask.height, " x ", mask.width);
  // The centre of an output pixel, in whole inputs.
  const auto nearest = [](int begin, int extent, int size, int output) {
    const auto place = (2 * std::int64_t{output} + 1) * extent / (2 * std::int64_t{size});
    return begin + static_cast<int>(std::min<std::int64_t>(place, extent - 1));
  };
  const Box& window = sizing.window;
  std::vector<int> columns;
  for (int x = 0; x < window.width; ++x) {
    const int output = window.left + (sizing.mirrored ? window.width - 1 - x : x);
    columns.push_back(nearest(sizing.box.left, sizing.box.width, sizing.width, output));
  }
  target.reshape(window.height, window.width, 1);
  for (int y = 0; y < window.height; ++y) {
    const std::uint8_t* const from =
        mask.row(nearest(sizing.box.top, sizing.box.height, sizing.height, window.top + y));
    std::uint8_t* const to = target.row(y);
    for (int x = 0; x < window.width; ++x) to[x] = from[columns[static_cast<std::size_t>(x)]];
  }
}

}  // namespace hearth::data
