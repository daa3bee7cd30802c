// SPDX-License-Identifier: Apache-2.0
// Batches of images: read, transformed, perhaps mixed.
#include <algorithm>
#include <iterator>
#include <vector>

#include "core/error.h"
#include "data/batch_maker.h"
#include "data/order.h"

namespace hearth::data {
namespace {

class ImageBatches : public BatchMaker {
 public:
  ImageBatches(const Dataset& dataset, const Transforms& transforms, const LoaderOptions& options)
      : dataset_(dataset), transforms_(transforms), options_(options) {
    HEARTH_CHECK(ConfigError, options.batch_size >= 1, "loader: batch_size ", options.batch_size, " is below 1");
    for (const double alpha : {options.mixup_alpha, options.cutmix_alpha})
      HEARTH_CHECK(ConfigError, alpha >= 0 && alpha <= 1000, "loader: mixup or cutmix alpha ", alpha,
                   " is outside 0..1000");
    const DType possible[] = {DType::f32, DType::bf16, DType::f16, DType::u8};
    HEARTH_CHECK(DTypeError, std::count(std::begin(possible), std::end(possible), options.dtype) == 1,
                 "loader: images of ", options.dtype, "; f32, bf16, f16 and u8 are possible");
    const std::int64_t size = dataset.size();
    HEARTH_CHECK(DataError, size < (std::int64_t{1} << 32), dataset.source(), ": ", size,
                 " samples; at most 2^32 - 1 can be addressed");
    per_epoch_ = size / options.batch_size + (!options.drop_last && size % options.batch_size != 0 ? 1 : 0);
    HEARTH_CHECK(DataError, per_epoch_ > 0, dataset.source(), ": ", size, " samples give no batch of ",
                 options.batch_size, options.drop_last ? " when the incomplete one is dropped" : "");
  }

  std::int64_t per_epoch() const override { return per_epoch_; }
  std::int64_t samples_per_epoch() const override {
    return std::min(per_epoch_ * options_.batch_size, dataset_.size());
  }

  std::optional<Batch> make(std::int64_t epoch_number, std::int64_t index, Workspace& space,
                            const std::function<bool()>& cancelled) const override {
    Batch batch;
    const std::int64_t first = index * options_.batch_size;
    const std::int64_t count = std::min(options_.batch_size, dataset_.size() - first);
    const auto epoch = static_cast<std::uint64_t>(epoch_number);
    ByEpoch<std::vector<std::int64_t>>::Pointer order;
    if (options_.shuffle)
      order = orders_.of(epoch_number, [&] { return shuffled_order(dataset_.size(), options_.seed, epoch); });
    const ImageShape shape = transforms_.output_shape();
    batch.images = Tensor::empty({count, shape.height, shape.width, shape.channels}, options_.dtype);
    batch.labels = Tensor::empty({count}, DType::i64);
    const bool pixels = options_.dtype == DType::u8;
    if (pixels && transforms_.erases()) batch.erased = Tensor::empty({count, 4}, DType::i32);
    std::byte* target = batch.images.bytes();
    const std::size_t stride = batch.images.byte_size() / static_cast<std::size_t>(count);
    for (std::int64_t i = 0; i < count; ++i) {
      if (cancelled()) return std::nullopt;
      const std::int64_t sample = order ? (*order)[static_cast<std::size_t>(first + i)] : first + i;
      batch.samples.push_back(sample);
      batch.labels.data<std::int64_t>()[i] = dataset_.read(sample, space.image);
      const Random random = random_of(options_.seed, Purpose::augment, epoch, static_cast<std::uint32_t>(sample));
      std::byte* const place = target + static_cast<std::size_t>(i) * stride;
      if (!pixels) {
        transforms_.apply(space.image, space.scratch, random, options_.dtype, place);
        continue;
      }
      const Box box =
          transforms_.apply_pixels(space.image, space.scratch, random, reinterpret_cast<std::uint8_t*>(place));
      const std::int32_t sides[] = {box.top, box.left, box.height, box.width};
      if (batch.erased.defined()) std::copy_n(sides, 4, batch.erased.data<std::int32_t>() + 4 * i);
    }
    if (options_.mixup_alpha > 0 || options_.cutmix_alpha > 0) mix(batch, epoch, index);
    return batch;
  }

 private:
  void mix(Batch& batch, std::uint64_t epoch, std::int64_t index) const {
    Random random = random_of(options_.seed, Purpose::mixup, epoch, static_cast<std::uint32_t>(index));
    const ImageShape shape = transforms_.output_shape();
    const PairMix how = draw_pair_mix(options_.mixup_alpha, options_.cutmix_alpha, shape.height, shape.width, random);
    batch.lambda = how.weight;
    const std::int64_t n = batch.size();
    Tensor soft = Tensor::empty({n, dataset_.classes()}, DType::f32);
    mix_labels(batch.labels.data<std::int64_t>(), n, dataset_.classes(), how.weight, soft.data<float>());
    if (options_.dtype == DType::u8) {
      const Box& box = how.box;
      batch.share =
          Tensor::of<double>({5}, {how.share, 1.0 * box.top, 1.0 * box.left, 1.0 * box.height, 1.0 * box.width})
              .to(DType::f32);
    } else {
      mix_images(options_.dtype, batch.images.bytes(), n, shape, how);
    }
    batch.labels = soft;
  }

  const Dataset& dataset_;
  const Transforms& transforms_;
  const LoaderOptions& options_;
  std::int64_t per_epoch_ = 0;
  ByEpoch<std::vector<std::int64_t>> orders_;
};

}  // namespace

std::unique_ptr<BatchMaker> image_batches(const Dataset& dataset, const Transforms& transforms,
                                          const LoaderOptions& options) {
  return std::make_unique<ImageBatches>(dataset, transforms, options);
}

}  // namespace hearth::data
