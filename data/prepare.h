// SPDX-License-Identifier: Apache-2.0
// One image file as a trained network wants it.
#pragma once

#include <string>

#include "hearth/core/tensor.h"
#include "hearth/data/dataset.h"
#include "hearth/data/transforms.h"

namespace hearth::data {

/// Decodes a JPEG or PNG file, shrinks it as the data set does, brings it to the channels and size that the set's
/// images have (grey by luma, ITU-R BT.601; bilinear resize), and applies the evaluation transforms: a file of the set
/// becomes what it is in evaluation. Returns f32 [1, H, W, C].
/// FileError or DataError, naming the file, if it cannot be read.
Tensor load_input(const std::string& path, const Dataset& dataset, const Transforms& eval_transforms);

}  // namespace hearth::data
