// SPDX-License-Identifier: Apache-2.0
#include "hearth/data/prepare.h"

#include "hearth/core/random.h"
#include "hearth/data/image.h"
#include "hearth/data/resize.h"

namespace hearth::data {
namespace {

Image to_grey(const Image& image) {
  Image grey;
  grey.reshape(image.height, image.width, 1);
  for (std::size_t i = 0; i < grey.pixels.size(); ++i) {
    const std::uint8_t* rgb = image.pixels.data() + 3 * i;
    grey.pixels[i] = static_cast<std::uint8_t>((299 * rgb[0] + 587 * rgb[1] + 114 * rgb[2] + 500) / 1000);
  }
  return grey;
}

}  // namespace

Tensor load_input(const std::string& path, const Dataset& dataset, const Transforms& eval_transforms) {
  Image image = decode_image(path);
  dataset.shrink(image);
  const ImageShape dataset_shape = dataset.image_shape();
  if (dataset_shape.channels == 1) image = to_grey(image);
  Image scratch;
  if (dataset_shape.height > 0 && (image.height != dataset_shape.height || image.width != dataset_shape.width)) {
    resize(image, {0, 0, image.height, image.width}, dataset_shape.height, dataset_shape.width, scratch);
    std::swap(image, scratch);
  }
  const ImageShape shape = eval_transforms.output_shape();
  const Tensor input = Tensor::empty({1, shape.height, shape.width, shape.channels});
  eval_transforms.apply(image, scratch, Random(0, 0), DType::f32, input.bytes());
  return input;
}

}  // namespace hearth::data
