// SPDX-License-Identifier: Apache-2.0
// Batches of images with masks, which both go through the same changes of place.
#include <algorithm>
#include <functional>
#include <iterator>

#include "core/error.h"
#include "data/images/transforms/resize.h"
#include "data/images/transforms/transforms.h"
#include "data/loading/batch_maker.h"
#include "data/loading/order.h"
#include "data/masks/mask_dataset.h"

namespace hearth::data {
namespace {

class MaskBatches : public OrderedBatches {
 public:
  MaskBatches(const MaskDataset& dataset, const Transforms& transforms, const LoaderOptions& options)
      : OrderedBatches(dataset.size(), options, dataset.source(), "samples"),
        dataset_(dataset),
        transforms_(transforms) {
    const TransformOptions& how = transforms.options();
    HEARTH_CHECK(
        ConfigError,
        how.rand_augment.ops == 0 && how.erasing.probability == 0 && options.mixup_alpha == 0 &&
            options.cutmix_alpha == 0,
        "loader: rand_augment, erasing, mixup and cutmix are for images with one label; images with masks have "
        "random crops, flip and colour");
    const DType possible[] = {DType::f32, DType::bf16, DType::f16, DType::u8};
    HEARTH_CHECK(DTypeError, std::count(std::begin(possible), std::end(possible), options.dtype) == 1,
                 "loader: images of ", options.dtype, "; f32, bf16, f16 and u8 are possible");
  }

  bool fill(Batch& batch, Workspace& space, const std::function<bool()>& cancelled) const override {
    const std::int64_t count = batch.size();
    if (!space.kept) begin(batch);
    const Tensor images = batch["images"], labels = batch["labels"];
    const std::size_t stride = images.byte_size() / static_cast<std::size_t>(count);
    const std::int64_t pixels = labels.size() / count;
    Image mask;
    for (std::int64_t i = space.kept.value_or(0); i < count; ++i) {
      if (cancelled()) return false;
      const std::int64_t sample = batch.samples[static_cast<std::size_t>(i)];
      space.clock.at(Stage::read, sample);
      const auto epoch = static_cast<std::uint64_t>(batch.epoch);
      Random random = random_of(options().seed, Purpose::augment, epoch, static_cast<std::uint32_t>(sample));
      const auto choose = [&](int height, int width) { return transforms_.sizing(height, width, random); };
      dataset_.read_region(sample, choose, space.decoded, space.region, mask);
      space.clock.enter(Stage::augment);
      put_labels(mask, space.region.sizing, random, labels.data<std::int64_t>() + i * pixels);
      put_pixels(space, random, images.bytes() + static_cast<std::size_t>(i) * stride);
    }
    space.clock.at(Stage::assemble);
    const std::int64_t* const all = labels.data<const std::int64_t>();
    batch.counted = labels.size() - std::count(all, all + labels.size(), ignored_label);
    return true;
  }

 private:
  void begin(Batch& batch) const {
    const ImageShape shape = transforms_.output_shape();
    batch.set("images", Tensor::empty({batch.size(), shape.height, shape.width, shape.channels}, options().dtype));
    batch.set("labels", Tensor::empty({batch.size(), shape.height, shape.width}, DType::i64));
  }

  void put_pixels(Workspace& space, Random& random, std::byte* target) const {
    transforms_.augment(space.decoded, space.region, space.image, space.scratch, random);
    if (options().dtype == DType::u8)
      (void)transforms_.finish_pixels(space.image, random, reinterpret_cast<std::uint8_t*>(target));
    else
      transforms_.finish(space.image, random, options().dtype, target);
  }

  /// `random` as augment() of the image finds it.
  void put_labels(const Image& mask, const Sizing& sizing, Random random, std::int64_t* target) const {
    Image moved, scratch;
    resize_mask(mask, sizing, moved);
    transforms_.move(moved, scratch, transforms_.draw_moves(random), ignored_pixel);
    std::transform(moved.pixels.begin(), moved.pixels.end(), target,
                   [](std::uint8_t label) { return label == ignored_pixel ? ignored_label : std::int64_t{label}; });
  }

  const MaskDataset& dataset_;
  const Transforms& transforms_;
};

}  // namespace

std::unique_ptr<BatchMaker> MaskDataset::batches(const Transforms& transforms, const LoaderOptions& options) const {
  return std::make_unique<MaskBatches>(*this, transforms, options);
}

}  // namespace hearth::data
