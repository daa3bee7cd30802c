// SPDX-License-Identifier: Apache-2.0
// One image file as a trained network wants it.
#pragma once

#include <string>

#include "hearth/core/tensor.h"
#include "hearth/data/dataset.h"
#include "hearth/data/transforms.h"

namespace hearth::data {

/// Decodes a JPEG or PNG file, brings it to the channels and size that the data set's images have (grey by luma, ITU-R
/// BT.601; bilinear resize), and applies the evaluation transforms. Returns f32 [1, H, W, C].
/// FileError or DataError, naming the file, if it cannot be read.
Tensor load_input(const std::string& path, const ImageShape& dataset_shape, const Transforms& eval_transforms);

}  // namespace hearth::data
