// SPDX-License-Identifier: Apache-2.0
// Datasets of images with a class for each pixel.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "data/dataset.h"
#include "data/images/codecs/image.h"
#include "data/images/codecs/sizing.h"
#include "data/masks/mask_classes.h"
#include "data/masks/mask_folder.h"
#include "data/source/file_opener.h"

namespace hearth::data {

/// Images and masks in files. Batches are those of "images with masks" (data/batch.h): masks go through the same
/// resize, crop and mirroring as their images, by the nearest pixel, and ignored_label is what lies outside of them.
/// Of the transforms RandAugment, erasing and mixing are none of theirs.
class HEARTH_API MaskDataset : public Dataset {
 public:
  /// `decode_bytes` limits the memory that decoding one file may take.
  MaskDataset(MaskedFiles files, std::shared_ptr<const MaskClasses> classes, std::int64_t decode_bytes);

  std::int64_t size() const override { return static_cast<std::int64_t>(files_.files.size()); }
  const std::string& source() const override { return files_.source; }
  const std::vector<std::string>& class_names() const override { return classes_->names(); }
  std::string sample_name(std::int64_t index) const override;
  /// The names of the image, and the sizes of both files.
  void identify(std::int64_t index, Sha256& digest) const override;
  Warnings warnings() const override { return files_.warnings; }
  const char* unit() const override { return "images"; }
  const MaskDataset* masks() const override { return this; }
  std::unique_ptr<BatchMaker> batches(const Transforms& transforms, const LoaderOptions& options) const override;

  ImageShape image_shape() const { return {0, 0, 3}; }
  /// Some of the images, in this order, as a set. IndexError.
  std::shared_ptr<const MaskDataset> subset(const std::vector<std::int64_t>& indices) const;
  /// The part of an image that the resize needs which `choose` answers with, as decode_region() has it, and the whole
  /// mask (MaskClasses::decode()). IndexError; FileError, DataError for files that cannot be read, an image with a
  /// fault, a mask of another size than its image, and where an image that its EXIF orientation turns leaves open which
  /// pixels the mask means.
  void read_region(std::int64_t index, const ChooseSizing& choose, Image& image, Region& region, Image& mask) const;
  /// All of an image and its mask. Errors as there.
  void read(std::int64_t index, Image& image, Image& mask) const;
  const MaskClasses& mask_classes() const { return *classes_; }
  /// The stored bytes of a mask's file. IndexError, FileError, DataError.
  std::vector<std::uint8_t> mask_file(std::int64_t index) const;

 private:
  const MaskedFile& file(std::int64_t index) const;
  void check_sizes(const MaskedFile& file, const Region& region, const Image& mask) const;

  MaskedFiles files_;
  std::shared_ptr<const MaskClasses> classes_;
  std::int64_t decode_bytes_;
  FileOpener opener_;
};

/// The window of a mask that goes with the resize of its image: the nearest pixels. `mask` is the whole one.
HEARTH_API void resize_mask(const Image& mask, const Sizing& sizing, Image& target);

}  // namespace hearth::data
