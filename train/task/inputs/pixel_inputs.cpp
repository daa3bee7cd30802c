// SPDX-License-Identifier: Apache-2.0
#include "train/task/inputs/pixel_inputs.h"

#include "ops/image/padded_images.h"
#include "ops/ops.h"

namespace hearth::train {

void PixelInputs::prepare(const TrainedModel& trained, const data::DataSplits& data) {
  const std::int64_t channels = data.input_shape().channels;
  pixel_values_ = Tensor::of({channels, 256}, data.train_transforms.normalizer().values()).to(trained.device());
  const std::vector<NamedTensor> all = trained.model->parameters();
  pads_pixels_ = !all.empty() && all.front().tensor->rank() == 4 && all.front().tensor->dim(3) == channels;
}

nn::Inputs PixelInputs::of(const TrainedModel& trained, const data::Batch& batch) const {
  const Tensor& images = batch["images"];
  if (images.dtype() != DType::u8) return {images};
  const DType dtype = trained.autocast().value_or(DType::f32);
  const std::int64_t capacity = pads_pixels_ ? detail::pixel_capacity(dtype, images.dim(3), trained.device()) : 0;
  return {detail::normalize_images(
      images, pixel_values_, {.dtype = dtype, .erased = batch.find("erased"), .lambda = batch.find("mix")}, capacity)};
}

}  // namespace hearth::train
