// SPDX-License-Identifier: Apache-2.0
// Images in memory as a dataset.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "data/images/image_dataset.h"

namespace hearth::data {

/// Images of one size, decoded, in memory.
class HEARTH_API MemoryImages : public ImageDataset {
 public:
  /// `pixels` holds labels.size() images of `shape`, one after the other. DataError, with `source`, if the counts
  /// differ, a label lies outside the class names, or images are larger than there are any.
  MemoryImages(std::string source, ImageShape shape, std::vector<std::uint8_t> pixels, std::vector<std::int32_t> labels,
               std::vector<std::string> class_names);
  std::int64_t size() const override { return static_cast<std::int64_t>(labels_.size()); }
  ImageShape image_shape() const override { return shape_; }
  const std::vector<std::string>& class_names() const override { return class_names_; }
  std::int64_t label(std::int64_t index) const override;
  std::int64_t read(std::int64_t index, Image& image) const override;
  const std::string& source() const override { return source_; }
  void identify(std::int64_t index, Sha256& digest) const override;

 private:
  std::string source_;
  ImageShape shape_;
  std::vector<std::uint8_t> pixels_;
  std::vector<std::int32_t> labels_;
  std::vector<std::string> class_names_;
};

}  // namespace hearth::data
