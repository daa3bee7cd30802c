// SPDX-License-Identifier: Apache-2.0
// From the pixels that a loader delivers to what a network reads, in one pass over the images.
#pragma once

#include <cstdint>

#include "core/cpu/stream.h"
#include "core/cuda/stream.h"
#include "core/tensor.h"

namespace hearth {

struct NormalizeImagesOptions {
  DType dtype = DType::f32;  ///< of the result: f32, f64, f16 or bf16
  /// Room for so many channels in each pixel of the result, what lies behind the images' own being zeros; 0 for none
  /// beyond them. conv2d_pixel_channels() tells what a convolution reads without a copy.
  std::int64_t pixel_channels = 0;
  Tensor erased{};  ///< i32 [N, 4] or absent: of each image a box (top, left, height, width) that becomes 0
  /// f32 [5] or absent: share, top, left, height, width (whole numbers). Within the box, image n is mixed with image
  /// N-1-n to share y_n + (1 - share) y_(N-1-n).
  Tensor share{};
};

/// y[n,h,w,c] = values[c][pixels[n,h,w,c]], then the box, then the mixture (mixup and CutMix; the image in the middle
/// of an odd number stays as it is), all in f32 and rounded once. pixels u8 [N,H,W,C]; values f32 [C,256], what each
/// pixel value of a channel becomes. y [N,H,W,C], with pixel_channels > C a view that is not contiguous. Carries no
/// gradient. UsageError for what is absent; DTypeError, ShapeError and DeviceError for what is of another type, shape
/// or device, and for images of 2^31 elements or more.
HEARTH_API Tensor normalize_images(const Tensor& pixels, const Tensor& values,
                                   const NormalizeImagesOptions& options = {});

namespace kernels {

/// Extents of the images, and of their pixels in memory.
struct PixelsShape {
  std::int64_t n = 0, h = 0, w = 0, c = 0;
  std::int64_t room = 0;  ///< elements of a pixel of y, >= c
};

/// y [N,H,W,room]; the other operands as above, contiguous, `erased` and `share` perhaps undefined. N, H, W, C >= 1.
void normalize_images(cpu::Stream&, const PixelsShape& shape, const Tensor& pixels, const Tensor& values,
                      const Tensor& erased, const Tensor& share, const Tensor& y);
void normalize_images(cuda::Stream&, const PixelsShape& shape, const Tensor& pixels, const Tensor& values,
                      const Tensor& erased, const Tensor& share, const Tensor& y);

}  // namespace kernels
}  // namespace hearth
