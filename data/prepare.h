// SPDX-License-Identifier: Apache-2.0
// One image as a trained model wants it.
#pragma once

#include <string>

#include "core/tensor.h"
#include "data/images/image_dataset.h"
#include "data/images/transforms/transforms.h"

namespace hearth::data {

struct ImageFolderOptions;

/// Conforms an image and applies the evaluation transforms: one of the set becomes what it is in evaluation. Writes
/// output_shape() values of f32 to `target`.
void prepare_input(Image image, const ImageDataset& dataset, const Transforms& eval_transforms, const std::string& name,
                   float* target);

/// The same from an image file, which is read as `files` says. FileError or DataError, naming the file, if it cannot be
/// read.
void prepare_file(const std::string& path, const ImageFolderOptions& files, const ImageDataset& dataset,
                  const Transforms& eval_transforms, float* target);

/// The same as f32 [1, H, W, C].
Tensor load_input(const std::string& path, const ImageFolderOptions& files, const ImageDataset& dataset,
                  const Transforms& eval_transforms);

}  // namespace hearth::data
