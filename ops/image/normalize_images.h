// SPDX-License-Identifier: Apache-2.0
// From the pixels that a loader delivers to what a model reads, in one pass over the images.
#pragma once

#include "core/tensor.h"

namespace hearth {

struct NormalizeImagesOptions {
  DType dtype = DType::f32;  ///< of the result: f32, f64, f16 or bf16
  Tensor erased{};           ///< i32 [N, 4] or absent: of each image a box (top, left, height, width) that becomes 0
  /// f32 [5] or absent: lambda, top, left, height, width (whole numbers). Within the box, image n is mixed with image
  /// N-1-n to lambda y_n + (1 - lambda) y_(N-1-n).
  Tensor lambda{};
};

/// y[n,h,w,c] = values[c][pixels[n,h,w,c]], then the box, then the mixture (mixup and CutMix; the image in the middle
/// of an odd number stays as it is), all in f32 and rounded once. pixels u8 [N,H,W,C]; values f32 [C,256], what each
/// pixel value of a channel becomes. y [N,H,W,C]. Carries no gradient. UsageError for what is absent; DTypeError,
/// ShapeError and DeviceError for what is of another type, shape or device, and for images of 2^31 elements or more.
HEARTH_API Tensor normalize_images(const Tensor& pixels, const Tensor& values,
                                   const NormalizeImagesOptions& options = {});

}  // namespace hearth
