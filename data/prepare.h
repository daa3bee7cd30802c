// SPDX-License-Identifier: Apache-2.0
// One image as a trained model wants it.
#pragma once

#include <string>

#include "core/tensor.h"
#include "data/dataset.h"
#include "data/transforms/transforms.h"

namespace hearth::data {

/// Shrinks an image as the dataset does and brings it to the channels and size that the set's images have: one channel
/// by luma (ITU-R BT.601), three from one as equal ones, the size by bilinear resize. DataError, naming `name`, for
/// other channels.
void conform(Image& image, const ImageDataset& dataset, const std::string& name);

/// Conforms an image and applies the evaluation transforms: one of the set becomes what it is in evaluation. Writes
/// output_shape() values of f32 to `target`.
void prepare_input(Image image, const ImageDataset& dataset, const Transforms& eval_transforms, const std::string& name,
                   float* target);

/// The same from a JPEG or PNG file, as f32 [1, H, W, C]. FileError or DataError, naming the file, if it cannot be
/// read.
Tensor load_input(const std::string& path, const ImageDataset& dataset, const Transforms& eval_transforms);

}  // namespace hearth::data
