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
/// The kernels for first convolutions (ops/conv/cuda/stem.h) read 4, and others copy what they need.
constexpr std::int64_t stem_channels = 4;

/// How large, in channels, pixels should be for conv2d to read them without a copy: in f16 or bf16 on a CUDA device
/// stem_channels, or tensor_core_channels for more than that and fewer than those; else `channels`.
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
