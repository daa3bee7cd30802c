// SPDX-License-Identifier: Apache-2.0
// Batches of images with boxes: letterboxed, perhaps mirrored, boxes behind one another.
#include <algorithm>
#include <array>
#include <cstring>
#include <functional>
#include <iterator>

#include "core/error.h"
#include "data/boxes/box_dataset.h"
#include "data/images/transforms/resize.h"
#include "data/images/transforms/transforms.h"
#include "data/loading/batch_maker.h"
#include "data/loading/order.h"

namespace hearth::data {
namespace {

/// Of an image that is resized and has margins: where its pixels lie in the input.
struct PixelMap {
  double sx = 1, sy = 1, tx = 0, ty = 0;
};

PixelMap map_of(const Region& region, int size) {
  const Sizing& sizing = region.sizing;
  // The margins as crop() leaves them.
  const int left = (size - sizing.width) / 2, top = (size - sizing.height) / 2;
  PixelMap map{1.0 * sizing.width / region.width, 1.0 * sizing.height / region.height, 1.0 * left, 1.0 * top};
  if (sizing.mirrored) map.sx = -map.sx, map.tx += sizing.width;
  return map;
}

std::array<float, 4> mapped(const std::array<double, 4>& corners, const PixelMap& map) {
  const double x[] = {corners[0] * map.sx + map.tx, corners[2] * map.sx + map.tx};
  const double y[] = {corners[1] * map.sy + map.ty, corners[3] * map.sy + map.ty};
  return {static_cast<float>(std::min(x[0], x[1])), static_cast<float>(y[0]), static_cast<float>(std::max(x[0], x[1])),
          static_cast<float>(y[1])};
}

class BoxBatches : public OrderedBatches {
 public:
  BoxBatches(const BoxDataset& dataset, const Transforms& transforms, const LoaderOptions& options)
      : OrderedBatches(dataset.size(), options, dataset.source(), "samples"),
        dataset_(dataset),
        transforms_(transforms),
        size_(transforms.options().image_size),
        margin_(static_cast<std::uint8_t>(transforms.options().fill.value_or(0) * 255 + 0.5)) {
    HEARTH_CHECK(ConfigError,
                 size_ > 0 && transforms.options().fit == Fit::pad && transforms.output_shape().channels == 3,
                 "loader: images with boxes need transforms with an image_size and the fit pad, of 3 channels");
    HEARTH_CHECK(ConfigError, options.mixup_alpha == 0 && options.cutmix_alpha == 0,
                 "loader: mixup and cutmix mix labels of whole images; images with boxes have none");
    const DType possible[] = {DType::f32, DType::bf16, DType::f16, DType::u8};
    HEARTH_CHECK(DTypeError, std::count(std::begin(possible), std::end(possible), options.dtype) == 1,
                 "loader: images of ", options.dtype, "; f32, bf16, f16 and u8 are possible");
  }

  bool fill(Batch& batch, Workspace& space, const std::function<bool()>& cancelled) const override {
    const std::int64_t count = batch.size();
    if (!space.kept) begin(batch);
    const Tensor images = batch["images"];
    const std::size_t stride = images.byte_size() / static_cast<std::size_t>(count);
    std::vector<TensorSample>& rows = space.samples;
    rows.resize(static_cast<std::size_t>(space.kept.value_or(0)));
    for (std::int64_t i = space.kept.value_or(0); i < count; ++i) {
      if (cancelled()) return false;
      const std::int64_t sample = batch.samples[static_cast<std::size_t>(i)];
      space.clock.at(Stage::read, sample);
      const auto epoch = static_cast<std::uint64_t>(batch.epoch);
      Random random = random_of(options().seed, Purpose::augment, epoch, static_cast<std::uint32_t>(sample));
      dataset_.read_region(sample, chooser(random), space.decoded, space.region);
      space.clock.enter(Stage::augment);
      put_pixels(space, random, images.bytes() + static_cast<std::size_t>(i) * stride);
      rows.push_back(targets_of(sample, space.region));
    }
    space.clock.at(Stage::assemble);
    join(batch, rows);
    rows.clear();
    return true;
  }

 private:
  void begin(Batch& batch) const {
    batch.set("images", Tensor::empty({batch.size(), size_, size_, 3}, options().dtype));
  }

  /// Whether the image is mirrored is the first draw of its stream.
  ChooseSizing chooser(Random& random) const {
    const bool mirrored = transforms_.training() && transforms_.options().horizontal_flip && random.below(2) == 1;
    return [this, mirrored](int height, int width) {
      Sizing sizing = whole_within(height, width, size_);
      sizing.filter = transforms_.options().filter;
      sizing.scaled_decoding = transforms_.options().scaled_decoding;
      sizing.mirrored = mirrored;
      return sizing;
    };
  }

  void put_pixels(Workspace& space, Random& random, std::byte* target) const {
    resize(space.decoded, space.region, space.image);
    Image* input = &space.image;
    if (space.image.height != size_ || space.image.width != size_) {
      crop(space.image, {-((size_ - space.image.height) / 2), -((size_ - space.image.width) / 2), size_, size_},
           margin_, space.scratch);
      input = &space.scratch;
    }
    if (options().dtype == DType::u8)
      std::memcpy(target, input->pixels.data(), input->pixels.size());
    else
      transforms_.finish(*input, random, options().dtype, target);
  }

  /// The row's part of each tensor but the images.
  TensorSample targets_of(std::int64_t sample, const Region& region) const {
    const PixelMap map = map_of(region, size_);
    std::vector<float> corners;
    std::vector<std::int64_t> classes;
    std::vector<std::uint8_t> flags;
    for (const BoxAnnotation& box : dataset_.boxes_in_pixels(sample, region.height, region.width)) {
      const std::array<float, 4> at = mapped(box.corners, map);
      if (!(at[2] > at[0] && at[3] > at[1])) continue;
      corners.insert(corners.end(), at.begin(), at.end());
      classes.push_back(box.label);
      flags.push_back(static_cast<std::uint8_t>((box.crowd ? 1 : 0) + (box.ignored ? 2 : 0)));
    }
    const auto boxes = static_cast<std::int64_t>(classes.size());
    return {{"boxes", Tensor::of<float>({boxes, 4}, corners)},
            {"classes", Tensor::of<std::int64_t>({boxes}, classes)},
            {"box_flags", Tensor::of<std::uint8_t>({boxes}, flags)},
            {"box_counts", Tensor::of<std::int64_t>({1}, {boxes})},
            {"image_sizes", Tensor::of<std::int64_t>({1, 2}, {region.height, region.width})},
            {"image_maps", Tensor::of<double>({1, 4}, {map.sx, map.sy, map.tx, map.ty})}};
  }

  /// The rows' parts behind one another.
  static Tensor joined(const std::vector<TensorSample>& rows, std::size_t which) {
    std::int64_t entries = 0;
    for (const TensorSample& row : rows) entries += row[which].second.dim(0);
    const Tensor& first = rows.front()[which].second;
    const Tensor all = Tensor::empty(first.shape().with(0, entries), first.dtype());
    std::byte* to = all.bytes();
    for (const TensorSample& row : rows) {
      const Tensor& part = row[which].second;
      if (part.byte_size() > 0) std::memcpy(to, part.bytes(), part.byte_size());
      to += part.byte_size();
    }
    return all;
  }
  static void join(Batch& batch, const std::vector<TensorSample>& rows) {
    constexpr std::size_t ragged = 3;  // the first three, which box_counts counts
    const TensorSample& names = rows.front();
    for (std::size_t which = ragged; which < names.size(); ++which) batch.set(names[which].first, joined(rows, which));
    for (std::size_t which = 0; which < ragged; ++which)
      batch.set_ragged(names[which].first, joined(rows, which), "box_counts");
  }

  const BoxDataset& dataset_;
  const Transforms& transforms_;
  int size_;
  std::uint8_t margin_;
};

}  // namespace

std::unique_ptr<BatchMaker> BoxDataset::batches(const Transforms& transforms, const LoaderOptions& options) const {
  return std::make_unique<BoxBatches>(*this, transforms, options);
}

}  // namespace hearth::data
