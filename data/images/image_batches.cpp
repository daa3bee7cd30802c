// SPDX-License-Identifier: Apache-2.0
// Batches of images: read, transformed, perhaps mixed.
#include <algorithm>
#include <functional>
#include <iterator>
#include <vector>

#include "core/error.h"
#include "data/images/image_dataset.h"
#include "data/images/transforms/resize.h"
#include "data/images/transforms/transforms.h"
#include "data/loading/batch_maker.h"
#include "data/loading/order.h"

namespace hearth::data {
namespace {

class ImageBatches : public OrderedBatches {
 public:
  ImageBatches(const ImageDataset& dataset, const Transforms& transforms, const LoaderOptions& options)
      : OrderedBatches(dataset.size(), options, dataset.source(), "samples"),
        dataset_(dataset),
        transforms_(transforms) {
    for (const double alpha : {options.mixup_alpha, options.cutmix_alpha})
      HEARTH_CHECK(ConfigError, alpha >= 0 && alpha <= 1000, "loader: mixup or cutmix alpha ", alpha,
                   " is outside 0..1000");
    const DType possible[] = {DType::f32, DType::bf16, DType::f16, DType::u8};
    HEARTH_CHECK(DTypeError, std::count(std::begin(possible), std::end(possible), options.dtype) == 1,
                 "loader: images of ", options.dtype, "; f32, bf16, f16 and u8 are possible");
  }

  bool fill(Batch& batch, Workspace& space, const std::function<bool()>& cancelled) const override {
    const std::int64_t count = batch.size();
    const auto epoch = static_cast<std::uint64_t>(batch.epoch);
    const bool pixels = options().dtype == DType::u8;
    if (!space.kept) begin(batch, pixels);
    const Tensor images = batch["images"], labels = batch["labels"], erased = batch.find("erased");
    std::byte* target = images.bytes();
    const std::size_t stride = images.byte_size() / static_cast<std::size_t>(count);
    for (std::int64_t i = space.kept.value_or(0); i < count; ++i) {
      if (cancelled()) return false;
      const std::int64_t sample = batch.samples[static_cast<std::size_t>(i)];
      space.clock.at(Stage::read, sample);
      const Random begin = random_of(options().seed, Purpose::augment, epoch, static_cast<std::uint32_t>(sample));
      Random random = begin;
      const auto choose = [&](int height, int width) {
        random = begin;  // anew for a sample that stands in
        return transforms_.sizing(height, width, random);
      };
      labels.data<std::int64_t>()[i] = read(sample, std::ref(choose), space);
      space.clock.enter(Stage::augment);
      std::byte* const place = target + static_cast<std::size_t>(i) * stride;
      if (!pixels) {
        transforms_.augment(space.decoded, space.region, space.image, space.scratch, random);
        transforms_.finish(space.image, random, options().dtype, place);
        continue;
      }
      const Box box = put_pixels(space, random, reinterpret_cast<std::uint8_t*>(place));
      const std::int32_t sides[] = {box.top, box.left, box.height, box.width};
      if (erased.defined()) std::copy_n(sides, 4, erased.data<std::int32_t>() + 4 * i);
    }
    space.clock.at(Stage::augment);
    if (options().mixup_alpha > 0 || options().cutmix_alpha > 0) mix(batch);
    return true;
  }

 protected:
  std::vector<std::int64_t> epoch_order(std::uint64_t epoch) const override {
    std::vector<std::int64_t> order = dataset_.stream_order(options().seed, epoch);
    return order.empty() ? OrderedBatches::epoch_order(epoch) : order;
  }

 private:
  /// Sets tensors without values, and asks for the samples.
  void begin(Batch& batch, bool pixels) const {
    const std::int64_t count = batch.size();
    const ImageShape shape = transforms_.output_shape();
    batch.set("images", Tensor::empty({count, shape.height, shape.width, shape.channels}, options().dtype));
    batch.set("labels", Tensor::empty({count}, DType::i64));
    if (pixels && transforms_.erases()) batch.set("erased", Tensor::empty({count, 4}, DType::i32));
    dataset_.read_ahead(batch.samples);
  }

  /// The loader chooses the sample that replaces a bad one, if it keeps a list of them; else the dataset does.
  std::int64_t read(std::int64_t sample, const ChooseSizing& choose, Workspace& space) const {
    if (!options().quarantine) return dataset_.read_region(sample, choose, space.decoded, space.region);
    const std::optional<std::int64_t> label = dataset_.try_read_region(sample, choose, space.decoded, space.region);
    HEARTH_CHECK(DataError, label.has_value(), dataset_.fault_of(sample));
    return *label;
  }

  /// Augments what was decoded; returns the box that is erased.
  Box put_pixels(Workspace& space, Random& random, std::uint8_t* target) const {
    // A copy of the result would take a tenth as long as the resize.
    const bool is_there = resizes_only(transforms_, space.region, space.decoded.channels) &&
                          resize_into(space.decoded, space.region, target);
    if (is_there) return transforms_.finish_pixels({}, random, target);
    transforms_.augment(space.decoded, space.region, space.image, space.scratch, random);
    return transforms_.finish_pixels(space.image, random, target);
  }

  void mix(Batch& batch) const {
    Random random = random_of(options().seed, Purpose::mixup, static_cast<std::uint64_t>(batch.epoch),
                              static_cast<std::uint32_t>(batch.index));
    const ImageShape shape = transforms_.output_shape();
    const PairMix how = draw_pair_mix(options().mixup_alpha, options().cutmix_alpha, shape.height, shape.width, random);
    batch.lambda = how.weight;
    const std::int64_t n = batch.size();
    Tensor soft = Tensor::empty({n, dataset_.classes()}, DType::f32);
    mix_labels(batch["labels"].data<std::int64_t>(), n, dataset_.classes(), how.weight, soft.data<float>());
    if (options().dtype == DType::u8) {
      const Box& box = how.box;
      const Tensor mix =
          Tensor::of<double>({5}, {how.lambda, 1.0 * box.top, 1.0 * box.left, 1.0 * box.height, 1.0 * box.width});
      batch.set("mix", mix.to(DType::f32), Batch::Axis::shared);
    } else {
      mix_images(options().dtype, batch["images"].bytes(), n, shape, how);
    }
    batch.set("labels", soft);
  }

  const ImageDataset& dataset_;
  const Transforms& transforms_;
};

}  // namespace

std::unique_ptr<BatchMaker> ImageDataset::batches(const Transforms& transforms, const LoaderOptions& options) const {
  return std::make_unique<ImageBatches>(*this, transforms, options);
}

}  // namespace hearth::data
