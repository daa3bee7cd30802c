// SPDX-License-Identifier: Apache-2.0
#include "data/prepare.h"

#include <functional>

#include "core/random.h"
#include "data/formats/image_folder.h"
#include "data/images/conform.h"

namespace hearth::data {

void prepare_input(Image image, const ImageDataset& dataset, const Transforms& eval_transforms, const std::string& name,
                   float* target) {
  conform(image, dataset, name);
  Image scratch;
  eval_transforms.apply(image, scratch, Random(0, 0), DType::f32, reinterpret_cast<std::byte*>(target));
}

void prepare_file(const std::string& path, const ImageFolderOptions& files, const ImageDataset& dataset,
                  const Transforms& eval_transforms, float* target) {
  Random random(0, 0);
  const auto choose = [&](int height, int width) {
    random = Random(0, 0);
    return eval_transforms.sizing(height, width, random);
  };
  Image decoded, image, scratch;
  Region region;
  static_cast<void>(read_conformed(*image_file(path, files), 0, dataset, std::ref(choose), decoded, region));
  eval_transforms.augment(decoded, region, image, scratch, random);
  eval_transforms.finish(image, random, DType::f32, reinterpret_cast<std::byte*>(target));
}

Tensor load_input(const std::string& path, const ImageFolderOptions& files, const ImageDataset& dataset,
                  const Transforms& eval_transforms) {
  const ImageShape shape = eval_transforms.output_shape();
  const Tensor input = Tensor::empty({1, shape.height, shape.width, shape.channels});
  prepare_file(path, files, dataset, eval_transforms, input.data<float>());
  return input;
}

}  // namespace hearth::data
