// SPDX-License-Identifier: Apache-2.0
// Datasets of images with labelled boxes.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "data/boxes/annotations.h"
#include "data/dataset.h"
#include "data/images/codecs/image.h"
#include "data/images/codecs/sizing.h"
#include "data/source/file_opener.h"

namespace hearth::data {

/// Images in files with boxes in memory. Batches are those of "images with boxes" (data/batch.h). Each image is fitted
/// to the input's square; in training it is moved before as TransformOptions::boxes and `horizontal_flip` say, by draws
/// for each sample and epoch. Of the other options those on resizing, filling, colour and normalisation count. Boxes
/// without area are no targets and left out.
class HEARTH_API BoxDataset : public Dataset {
 public:
  /// `decode_bytes` limits the memory that decoding one image may take.
  BoxDataset(AnnotatedImages annotated, std::int64_t decode_bytes);

  std::int64_t size() const override { return static_cast<std::int64_t>(annotated_.images.size()); }
  const std::string& source() const override { return annotated_.source; }
  const std::vector<std::string>& class_names() const override { return annotated_.class_names; }
  std::string sample_name(std::int64_t index) const override;
  /// The file's name and its boxes.
  void identify(std::int64_t index, Sha256& digest) const override;
  Warnings warnings() const override { return annotated_.warnings; }
  const char* unit() const override { return "images"; }
  const BoxDataset* boxes() const override { return this; }
  std::unique_ptr<BatchMaker> batches(const Transforms& transforms, const LoaderOptions& options) const override;

  const AnnotatedImages& annotated() const { return annotated_; }
  /// Some of the images, in this order, as a set. IndexError.
  std::shared_ptr<const BoxDataset> subset(const std::vector<std::int64_t>& indices) const;
  ImageShape image_shape() const { return {0, 0, 3}; }
  /// The part of an image that the resize needs which `choose` answers with, as decode_region() has it. IndexError;
  /// FileError, DataError for a file that cannot be read, for an image with a fault of its labels, and where the labels
  /// mean pixels that the image does not have: another width or height, or, of an image that its EXIF orientation
  /// turns, perhaps the pixels as they lie in the file.
  void read_region(std::int64_t index, const ChooseSizing& choose, Image& image, Region& region) const;
  /// All of an image, upright. Errors as there.
  void read(std::int64_t index, Image& image) const;
  /// The boxes of an image of this size, in pixels.
  std::vector<BoxAnnotation> boxes_in_pixels(std::int64_t index, int height, int width) const;

 private:
  void check_size(std::int64_t index, const Region& region) const;

  AnnotatedImages annotated_;
  std::int64_t decode_bytes_;
  FileOpener opener_;
};

using BoxDatasetPointer = std::shared_ptr<const BoxDataset>;

}  // namespace hearth::data
