// SPDX-License-Identifier: Apache-2.0
// Datasets: samples by index, read by several threads at once, and the batches that a loader makes of them. Images with
// labels (data/images/image_dataset.h), images with boxes (data/boxes/box_dataset.h) or masks
// (data/masks/mask_dataset.h), sequences of tokens
// (data/text/token_set.h) and samples of any tensors (data/sample_dataset.h) are siblings.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "core/export.h"

namespace hearth {
class Sha256;
}

namespace hearth::data {

/// What a set passed over instead of failing.
struct Warnings {
  std::int64_t count = 0;
  std::vector<std::string> first;  ///< the first 20 sequences

  void add(const std::string& text) {
    ++count;
    if (first.size() < max_first) first.push_back(text);
  }
  /// Those of another part behind these.
  void add(const Warnings& more) {
    count += more.count;
    for (const std::string& text : more.first)
      if (first.size() < max_first) first.push_back(text);
  }

 private:
  static constexpr std::size_t max_first = 20;
};

/// What to do about a fault in the data: DataError, or a counted warning.
enum class OnFault : std::uint8_t { fail, skip };

class BatchMaker;
class BoxDataset;
class ImageDataset;
class MaskDataset;
class TokenDataset;
class Transforms;
struct LoaderOptions;

/// What every dataset has.
class HEARTH_API Dataset {
 public:
  virtual ~Dataset() = default;
  virtual std::int64_t size() const = 0;
  /// Where the samples come from, for messages and reports: a path or a name.
  virtual const std::string& source() const = 0;
  /// Makes batches as the options say; this dataset, the transforms (of images) and the options outlive the maker.
  virtual std::unique_ptr<BatchMaker> batches(const Transforms& transforms, const LoaderOptions& options) const = 0;
  /// Names by label; their number is the number of classes. None where samples have no classes.
  virtual const std::vector<std::string>& class_names() const;
  /// The sample's name, which it keeps when other samples come or go; empty where samples have none. Names decide what
  /// hold_out() sets aside of images.
  virtual std::string sample_name(std::int64_t) const { return {}; }
  /// Adds to `digest` what tells the sample from another one without decoding it: a file's name and size, or pixels in
  /// memory. Nothing where the configuration alone makes the samples.
  virtual void identify(std::int64_t, Sha256&) const {}
  /// What was left out as the options say, and is no fault.
  virtual Warnings warnings() const { return {}; }
  /// Samples passed over so far because they cannot be read.
  virtual Warnings unreadable() const { return {}; }
  /// What Batch::count() counts, for `hearth bench data`.
  virtual const char* unit() const { return "samples"; }
  /// This dataset if its samples are images with a label each, images with boxes, images with masks, or sequences of
  /// tokens; otherwise null.
  virtual const ImageDataset* images() const { return nullptr; }
  virtual const BoxDataset* boxes() const { return nullptr; }
  virtual const MaskDataset* masks() const { return nullptr; }
  virtual const TokenDataset* tokens() const { return nullptr; }

  std::int64_t classes() const { return static_cast<std::int64_t>(class_names().size()); }

 protected:
  void check_index(std::int64_t index) const;
};

using DatasetPointer = std::shared_ptr<const Dataset>;

/// Mean and standard deviation of each channel, pixels in 0..1.
struct ChannelStatistics {
  std::vector<double> mean{};
  std::vector<double> std{};
};

/// The splits of a dataset; `valid` and `test` may be absent.
struct Splits {
  DatasetPointer train;
  DatasetPointer valid;
  DatasetPointer test;
  ChannelStatistics statistics{};  ///< what images are usually normalised by; empty if nothing is usual
};

/// "0", "1", ... for sets whose classes have no names.
HEARTH_API std::vector<std::string> numbered_classes(std::int64_t count);

}  // namespace hearth::data
