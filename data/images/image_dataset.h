// SPDX-License-Identifier: Apache-2.0
// Datasets of images with a label each.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "data/dataset.h"
#include "data/images/codecs/image.h"
#include "data/images/codecs/sizing.h"

namespace hearth::data {

struct Sample {
  Image image;
  std::int64_t label = 0;
};

/// Images with a label each.
class HEARTH_API ImageDataset : public Dataset {
 public:
  virtual ImageShape image_shape() const = 0;
  const std::vector<std::string>& class_names() const override = 0;
  /// The label of a sample, without decoding it. IndexError outside [0, size()).
  virtual std::int64_t label(std::int64_t index) const = 0;
  /// Puts the sample into `image`, whose memory is reused, and returns its label. A pure function of `index`, safe to
  /// call from several threads. IndexError outside [0, size()); DataError for a sample that cannot be decoded.
  virtual std::int64_t read(std::int64_t index, Image& image) const = 0;
  /// As read(), which for this sample may give another one's place: nothing where it would. Sets that pass over broken
  /// samples answer so, and sets made of some of their samples look for the next one among these.
  virtual std::optional<std::int64_t> try_read(std::int64_t index, Image& image) const { return read(index, image); }
  /// Why try_read() gave nothing for the sample; empty where it has not.
  virtual std::string fault_of(std::int64_t) const { return {}; }
  /// As read(), of the part of the image that the resize needs which `choose` answers with. Sets that can, decode no
  /// more than that; `region` says where it lies in `image`.
  std::int64_t read_region(std::int64_t index, const ChooseSizing& choose, Image& image, Region& region) const;
  /// As read_region(), and nothing where another sample would stand in. By default the image is read whole.
  virtual std::optional<std::int64_t> try_read_region(std::int64_t index, const ChooseSizing& choose, Image& image,
                                                      Region& region) const;
  /// Puts the image file that read() decodes into `bytes`, as it is; false where the set has no such files, or does
  /// more than to decode them. IndexError, FileError, DataError as read().
  virtual bool encoded(std::int64_t, std::vector<std::uint8_t>&) const { return false; }
  /// The shorter side, in pixels, to which read() shrinks an image that it has decoded and whose shorter side has more;
  /// 0 where it leaves images as they are.
  virtual int shrinks_to() const { return 0; }
  /// Shrinks an image that is not of the set as read() shrinks its own; mostly does nothing.
  void shrink(Image& image) const;
  Sample get(std::int64_t index) const;
  /// The order in which a shuffled epoch visits the samples, a function of (seed, epoch), where not every order is as
  /// good as another; empty where it is.
  virtual std::vector<std::int64_t> stream_order(std::uint64_t, std::uint64_t) const { return {}; }
  /// Tells the system that these samples are read next, where that makes reading faster. IndexError.
  virtual void read_ahead(std::span<const std::int64_t>) const {}

  /// Batches of "images" and "labels", transformed and perhaps mixed.
  std::unique_ptr<BatchMaker> batches(const Transforms& transforms, const LoaderOptions& options) const final;
  const char* unit() const final { return "images"; }
  const ImageDataset* images() const final { return this; }

 protected:
  /// read() of a set that passes over samples: the first from `index` on, around the end, that try_read() gives.
  /// IndexError; DataError if there is none.
  std::int64_t read_from(std::int64_t index, Image& image) const;
};

using ImageDatasetPointer = std::shared_ptr<const ImageDataset>;

/// The splits of a dataset of images; `valid` and `test` may be absent.
struct ImageSplits {
  ImageDatasetPointer train;
  ImageDatasetPointer valid;
  ImageDatasetPointer test;
  ChannelStatistics statistics{};
  operator Splits() const { return {train, valid, test, statistics}; }
};

}  // namespace hearth::data
