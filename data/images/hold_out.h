// SPDX-License-Identifier: Apache-2.0
// Some samples of a dataset of images as a dataset, and splits that are drawn.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "data/images/image_dataset.h"

namespace hearth::data {

/// Chosen samples of another set, in the given order.
class HEARTH_API ImageSubset : public ImageDataset {
 public:
  ImageSubset(ImageDatasetPointer whole, std::vector<std::int64_t> indices);
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

/// Samples of a set by number, some set aside.
struct HeldOutSamples {
  std::vector<std::int64_t> rest;
  std::vector<std::int64_t> held_out;
};
/// As hold_out() of a set whose samples have names, whatever they are.
HEARTH_API HeldOutSamples hold_out_by_name(const Dataset& whole, double fraction, std::uint64_t seed,
                                           std::string_view split);
/// Sets `count` samples aside, chosen by `seed` regardless of class, both parts in shuffled order.
HEARTH_API HeldOut hold_out_count(const ImageDatasetPointer& whole, std::int64_t count, std::uint64_t seed);

}  // namespace hearth::data
