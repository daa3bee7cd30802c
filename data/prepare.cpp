// SPDX-License-Identifier: Apache-2.0
#include "data/prepare.h"

#include <utility>

#include "core/error.h"
#include "core/random.h"
#include "data/image/image.h"
#include "data/transforms/resize.h"

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

Image to_rgb(const Image& image) {
  Image rgb;
  rgb.reshape(image.height, image.width, 3);
  for (std::size_t i = 0; i < rgb.pixels.size(); ++i) rgb.pixels[i] = image.pixels[i / 3];
  return rgb;
}

}  // namespace

void conform(Image& image, const ImageDataset& dataset, const std::string& name) {
  const ImageShape wanted = dataset.image_shape();
  HEARTH_CHECK(DataError, image.height > 0 && image.width > 0, name, ": an image without pixels");
  if (image.channels == 3 && wanted.channels == 1)
    image = to_grey(image);
  else if (image.channels == 1 && wanted.channels == 3)
    image = to_rgb(image);
  HEARTH_CHECK(DataError, image.channels == wanted.channels, name, ": an image of ", image.channels,
               " channels; the model was trained on images of ", wanted.channels);
  dataset.shrink(image);
  if (wanted.height == 0 || (image.height == wanted.height && image.width == wanted.width)) return;
  Image resized;
  resize(image, {0, 0, image.height, image.width}, wanted.height, wanted.width, resized);
  image = std::move(resized);
}

void prepare_input(Image image, const ImageDataset& dataset, const Transforms& eval_transforms, const std::string& name,
                   float* target) {
  conform(image, dataset, name);
  Image scratch;
  eval_transforms.apply(image, scratch, Random(0, 0), DType::f32, reinterpret_cast<std::byte*>(target));
}

Tensor load_input(const std::string& path, const ImageDataset& dataset, const Transforms& eval_transforms) {
  const ImageShape shape = eval_transforms.output_shape();
  const Tensor input = Tensor::empty({1, shape.height, shape.width, shape.channels});
  prepare_input(decode_image(path), dataset, eval_transforms, path, input.data<float>());
  return input;
}

}  // namespace hearth::data
