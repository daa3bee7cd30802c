// SPDX-License-Identifier: Apache-2.0
#include "data/images/hold_out.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <memory>
#include <utility>

#include "core/error.h"
#include "core/io/checksum.h"
#include "data/loading/order.h"

namespace hearth::data {

ImageSubset::ImageSubset(ImageDatasetPointer whole, std::vector<std::int64_t> indices)
    : whole_(std::move(whole)), indices_(std::move(indices)) {
  for (const std::int64_t index : indices_) {
    HEARTH_CHECK(IndexError, index >= 0 && index < whole_->size(), whole_->source(), ": subset names sample ", index,
                 " of ", whole_->size());
  }
}

std::int64_t ImageSubset::label(std::int64_t index) const {
  check_index(index);
  return whole_->label(indices_[static_cast<std::size_t>(index)]);
}

std::optional<std::int64_t> ImageSubset::try_read(std::int64_t index, Image& image) const {
  check_index(index);
  return whole_->try_read(indices_[static_cast<std::size_t>(index)], image);
}

std::string ImageSubset::fault_of(std::int64_t index) const {
  check_index(index);
  return whole_->fault_of(indices_[static_cast<std::size_t>(index)]);
}

std::optional<std::int64_t> ImageSubset::try_read_region(std::int64_t index, const ChooseSizing& choose, Image& image,
                                                         Region& region) const {
  check_index(index);
  return whole_->try_read_region(indices_[static_cast<std::size_t>(index)], choose, image, region);
}

bool ImageSubset::encoded(std::int64_t index, std::vector<std::uint8_t>& bytes) const {
  check_index(index);
  return whole_->encoded(indices_[static_cast<std::size_t>(index)], bytes);
}

std::string ImageSubset::sample_name(std::int64_t index) const {
  check_index(index);
  return whole_->sample_name(indices_[static_cast<std::size_t>(index)]);
}

std::vector<std::int64_t> ImageSubset::stream_order(std::uint64_t seed, std::uint64_t epoch) const {
  std::vector<std::int64_t> order = whole_->stream_order(seed, epoch);
  if (order.empty()) return order;
  std::vector<std::int64_t> own(static_cast<std::size_t>(whole_->size()), -1);
  for (std::size_t i = 0; i < indices_.size(); ++i)
    own[static_cast<std::size_t>(indices_[i])] = static_cast<std::int64_t>(i);
  for (std::int64_t& index : order) index = own[static_cast<std::size_t>(index)];
  std::erase(order, -1);
  // With a sample in it twice there is no such order.
  return order.size() == indices_.size() ? order : std::vector<std::int64_t>();
}

void ImageSubset::read_ahead(std::span<const std::int64_t> indices) const {
  std::vector<std::int64_t> of_whole;
  for (const std::int64_t index : indices) {
    check_index(index);
    of_whole.push_back(indices_[static_cast<std::size_t>(index)]);
  }
  whole_->read_ahead(of_whole);
}

void ImageSubset::identify(std::int64_t index, Sha256& digest) const {
  check_index(index);
  whole_->identify(indices_[static_cast<std::size_t>(index)], digest);
}

namespace {

/// Uniform in [0, 1): 53 bits of SHA-256 of "SPLIT:SEED:NAME".
double draw_of(std::string_view split, std::uint64_t seed, const std::string& name) {
  Sha256 digest;
  digest.update(join_text(split, ':', seed, ':', name));
  std::uint64_t bits = 0;
  const std::array<std::uint8_t, 32> bytes = digest.digest();
  for (std::size_t i = 0; i < 8; ++i) bits = bits << 8 | bytes[i];
  return static_cast<double>(bits >> 11) * 0x1p-53;
}

HeldOutSamples sides_by_name(const Dataset& whole, double fraction, std::uint64_t seed, std::string_view split) {
  std::vector<double> draws;
  for (std::int64_t i = 0; i < whole.size(); ++i) draws.push_back(draw_of(split, seed, whole.sample_name(i)));
  const auto [least, greatest] = std::minmax_element(draws.begin(), draws.end());
  // Between the least and the greatest draw, so that there is one on either side.
  const double bound = std::min(std::max(fraction, std::nextafter(*least, 2.0)), *greatest);
  HeldOutSamples sides;
  for (std::int64_t i = 0; i < whole.size(); ++i)
    (draws[static_cast<std::size_t>(i)] < bound ? sides.held_out : sides.rest).push_back(i);
  return sides;
}

HeldOutSamples sides_by_class(const ImageDataset& whole, double fraction, std::uint64_t seed) {
  std::vector<std::vector<std::int64_t>> by_class(static_cast<std::size_t>(whole.classes()));
  for (std::int64_t i = 0; i < whole.size(); ++i) by_class[static_cast<std::size_t>(whole.label(i))].push_back(i);
  HeldOutSamples sides;
  for (std::size_t label = 0; label < by_class.size(); ++label) {
    const auto& members = by_class[label];
    const auto order = shuffled_order(static_cast<std::int64_t>(members.size()), seed, label);
    const auto count = static_cast<std::size_t>(std::llround(fraction * static_cast<double>(members.size())));
    for (std::size_t i = 0; i < members.size(); ++i) {
      (i < count ? sides.held_out : sides.rest).push_back(members[static_cast<std::size_t>(order[i])]);
    }
  }
  std::sort(sides.rest.begin(), sides.rest.end());
  std::sort(sides.held_out.begin(), sides.held_out.end());
  return sides;
}

}  // namespace

HeldOutSamples hold_out_by_name(const Dataset& whole, double fraction, std::uint64_t seed, std::string_view split) {
  HEARTH_CHECK(ConfigError, fraction > 0 && fraction < 1, whole.source(), ": a held-out fraction of ", fraction,
               " is not between 0 and 1");
  HEARTH_CHECK(DataError, whole.size() > 1, whole.source(), ": holding out ", fraction, " of ", whole.size(),
               " samples leaves one split empty");
  return sides_by_name(whole, fraction, seed, split);
}

HeldOut hold_out(const ImageDatasetPointer& whole, double fraction, std::uint64_t seed, std::string_view split) {
  HEARTH_CHECK(ConfigError, fraction > 0 && fraction < 1, whole->source(), ": a held-out fraction of ", fraction,
               " is not between 0 and 1");
  for (std::int64_t i = 0; i < whole->size(); ++i) {
    const std::int64_t label = whole->label(i);
    HEARTH_CHECK(DataError, label >= 0 && label < whole->classes(), whole->source(), ": the label of sample ", i,
                 " is ", label, ", outside the ", whole->classes(), " classes");
  }
  const bool has_names = whole->size() > 1 && !whole->sample_name(0).empty();
  HeldOutSamples sides =
      has_names ? sides_by_name(*whole, fraction, seed, split) : sides_by_class(*whole, fraction, seed);
  HEARTH_CHECK(DataError, !sides.rest.empty() && !sides.held_out.empty(), whole->source(), ": holding out ", fraction,
               " of ", whole->size(), " samples leaves one split empty");
  return {std::make_shared<ImageSubset>(whole, std::move(sides.rest)),
          std::make_shared<ImageSubset>(whole, std::move(sides.held_out))};
}

HeldOut hold_out_count(const ImageDatasetPointer& whole, std::int64_t count, std::uint64_t seed) {
  HEARTH_CHECK(DataError, count > 0 && count < whole->size(), whole->source(), ": holding out ", count, " of ",
               whole->size(), " samples leaves one split empty");
  const auto order = shuffled_order(whole->size(), seed, 0);
  const auto middle = order.end() - count;
  return {std::make_shared<ImageSubset>(whole, std::vector<std::int64_t>(order.begin(), middle)),
          std::make_shared<ImageSubset>(whole, std::vector<std::int64_t>(middle, order.end()))};
}

}  // namespace hearth::data
