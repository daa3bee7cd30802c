// SPDX-License-Identifier: Apache-2.0
// Images in pixels with room for more channels than they have, as a convolution on tensor cores reads them. Internal:
// others see a view of the images' own channels that is not contiguous.
#pragma once

#include <cstdint>

#include "core/cpu/stream.h"
#include "core/cuda/stream.h"
#include "ops/image/normalize_images.h"

namespace hearth {
namespace detail {

/// Tensor cores read 8 channels at a time. Of fewer, zeros are added to images and filters: the sums stay the same.
constexpr std::int64_t tensor_core_channels = 8;
/// cuDNN has kernels for first convolutions in f16 that read 4: on an H200 a third of the time of 8 (forward 0.41 ms
/// for 1.22 in ResNet-50 at 256 images, the filters' gradient 0.41 for 0.92). In bf16 it has none.
constexpr std::int64_t library_channels_f16 = 4;

/// How large, in channels, pixels should be for conv2d to read them without a copy: for fewer than tensor_core_channels
/// in f16 or bf16 on a CUDA device that, or library_channels_f16 where the library is there; else `channels`.
std::int64_t pixel_capacity(DType dtype, std::int64_t channels, Device device);

/// normalize_images() into pixels of `room` channels, 0 for no more than the image has; what lies behind them is zeros,
/// and a convolution knows. ShapeError for room that is too small or too large.
Tensor normalize_images(const Tensor& pixels, const Tensor& values, const NormalizeImagesOptions& options,
                        std::int64_t channel_capacity);

/// Whether x [N, H, W, C] came from there with room beyond its channels, so that zeros lie behind them.
bool is_padded(const Tensor& x);

}  // namespace detail

namespace kernels {

/// Extents of the images, and of their pixels in memory.
struct PixelsShape {
  std::int64_t n = 0, h = 0, w = 0, c = 0;
  std::int64_t channel_capacity = 0;  ///< elements of a pixel of y, >= c
};

/// y [N,H,W,room]; the other operands as those of the op, contiguous, `erased` and `lambda` perhaps undefined. N, H, W,
/// C >= 1.
void normalize_images(cpu::Stream&, const PixelsShape& shape, const Tensor& pixels, const Tensor& values,
                      const Tensor& erased, const Tensor& lambda, const Tensor& y);
void normalize_images(cuda::Stream&, const PixelsShape& shape, const Tensor& pixels, const Tensor& values,
                      const Tensor& erased, const Tensor& lambda, const Tensor& y);

}  // namespace kernels
}  // namespace hearth
