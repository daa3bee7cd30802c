// SPDX-License-Identifier: Apache-2.0
// Datasets: samples by index, read by several threads at once, and the batches that a loader makes of them. Images with
// labels (here), sequences of tokens (data/text/token_set.h) and samples of any tensors (data/sample_dataset.h) are
// siblings.
#pragma once

#include <cstdint>
#include <iosfwd>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "data/image/image.h"
#include "data/image/sizing.h"

namespace hearth {
class Sha256;
}

namespace hearth::data {

struct Sample {
  Image image;
  std::int64_t label = 0;
};

/// What every image of a set has in common; 0 where images differ.
struct ImageShape {
  int height = 0;
  int width = 0;
  int channels = 0;
  bool operator==(const ImageShape&) const = default;
};
/// "28 x 28 x 1".
HEARTH_API std::ostream& operator<<(std::ostream& out, const ImageShape& shape);

/// What a set passed over instead of failing.
struct Warnings {
  std::int64_t count = 0;
  std::vector<std::string> first;  ///< the first 20 sequences

  void add(const std::string& text) {
    if (++count <= 20) first.push_back(text);
  }
};

/// What to do about a fault in the data: DataError, or a counted warning.
enum class OnFault : std::uint8_t { fail, skip };

class BatchMaker;
class ImageDataset;
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
  /// Adds to `digest` what tells the sample from another one without decoding it: a file's name and size, or pixels in
  /// memory. Nothing where the configuration alone makes the samples.
  virtual void identify(std::int64_t, Sha256&) const {}
  /// What was left out as the options say, and is no fault.
  virtual Warnings warnings() const { return {}; }
  /// Samples passed over so far because they cannot be read.
  virtual Warnings unreadable() const { return {}; }
  /// This dataset if its samples are images, or sequences of tokens; otherwise null.
  virtual const ImageDataset* images() const { return nullptr; }
  virtual const TokenDataset* tokens() const { return nullptr; }

  std::int64_t classes() const { return static_cast<std::int64_t>(class_names().size()); }

 protected:
  void check_index(std::int64_t index) const;
};

using DatasetPointer = std::shared_ptr<const Dataset>;

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
  /// The sample's name, which it keeps when other samples come or go; empty where samples have none. Names decide what
  /// hold_out() sets aside.
  virtual std::string sample_name(std::int64_t) const { return {}; }
  Sample get(std::int64_t index) const;
  /// The order in which a shuffled epoch visits the samples, a function of (seed, epoch), where not every order is as
  /// good as another; empty where it is.
  virtual std::vector<std::int64_t> stream_order(std::uint64_t, std::uint64_t) const { return {}; }
  /// Tells the system that these samples are read next, where that makes reading faster. IndexError.
  virtual void read_ahead(std::span<const std::int64_t>) const {}

  /// Batches of "images" and "labels", transformed and perhaps mixed.
  std::unique_ptr<BatchMaker> batches(const Transforms& transforms, const LoaderOptions& options) const final;
  const ImageDataset* images() const final { return this; }

 protected:
  /// read() of a set that passes over samples: the first from `index` on, around the end, that try_read() gives.
  /// IndexError; DataError if there is none.
  std::int64_t read_from(std::int64_t index, Image& image) const;
};

using ImageDatasetPointer = std::shared_ptr<const ImageDataset>;

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

/// The same of images.
struct ImageSplits {
  ImageDatasetPointer train;
  ImageDatasetPointer valid;
  ImageDatasetPointer test;
  ChannelStatistics statistics{};
  operator Splits() const { return {train, valid, test, statistics}; }
};

/// Images of one size, decoded, in memory.
class HEARTH_API MemoryDataset : public ImageDataset {
 public:
  /// `pixels` holds labels.size() images of `shape`, one after the other. DataError, with `source`, if the counts
  /// differ, a label lies outside the class names, or images are larger than there are any.
  MemoryDataset(std::string source, ImageShape shape, std::vector<std::uint8_t> pixels,
                std::vector<std::int32_t> labels, std::vector<std::string> class_names);
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

/// Chosen samples of another set, in the given order.
class HEARTH_API Subset : public ImageDataset {
 public:
  Subset(ImageDatasetPointer whole, std::vector<std::int64_t> indices);
  std::int64_t size() const override { return static_cast<std::int64_t>(indices_.size()); }
  ImageShape image_shape() const override { return whole_->image_shape(); }
  const std::vector<std::string>& class_names() const override { return whole_->class_names(); }
  std::int64_t label(std::int64_t index) const override;
  std::int64_t read(std::int64_t index, Image& image) const override { return read_from(index, image); }
  std::optional<std::int64_t> try_read(std::int64_t index, Image& image) const override;
  std::string fault_of(std::int64_t index) const override;
  std::optional<std::int64_t> try_read_region(std::int64_t index, const ChooseSizing& choose, Image& image,
                                              Region& region) const override;
  bool encoded(std::int64_t index, std::vector<std::uint8_t>& bytes) const override;
  int shrinks_to() const override { return whole_->shrinks_to(); }
  std::string sample_name(std::int64_t index) const override;
  void identify(std::int64_t index, Sha256& digest) const override;
  std::vector<std::int64_t> stream_order(std::uint64_t seed, std::uint64_t epoch) const override;
  void read_ahead(std::span<const std::int64_t> indices) const override;
  Warnings warnings() const override { return whole_->warnings(); }
  Warnings unreadable() const override { return whole_->unreadable(); }
  const std::string& source() const override { return whole_->source(); }

 private:
  ImageDatasetPointer whole_;
  std::vector<std::int64_t> indices_;
};

struct HeldOut {
  ImageDatasetPointer rest;
  ImageDatasetPointer held_out;
};

/// Sets `fraction` of every class aside, chosen by `seed` and kept in the set's order. The same seed always chooses the
/// same samples.
///
/// Where samples have names, each is chosen by its name, `seed` and `split` alone: samples that come or go move no
/// other. The fraction is then that of a draw for each sample, and not exact. Only where all draws fall on one side,
/// the sample with the draw nearest to the other side is moved there, so that neither is empty.
///
/// `split` keeps apart what is set aside twice from one set. ConfigError unless 0 < fraction < 1; DataError if one part
/// would be empty or a label lies outside the classes.
HEARTH_API HeldOut hold_out(const ImageDatasetPointer& whole, double fraction, std::uint64_t seed,
                            std::string_view split = "test");
/// Sets `count` samples aside, chosen by `seed` regardless of class, both parts in shuffled order.
HEARTH_API HeldOut hold_out_count(const ImageDatasetPointer& whole, std::int64_t count, std::uint64_t seed);

/// "0", "1", ... for sets whose classes have no names.
HEARTH_API std::vector<std::string> numbered_classes(std::int64_t count);

}  // namespace hearth::data
