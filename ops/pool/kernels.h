// SPDX-License-Identifier: Apache-2.0
// Arithmetic of the pooling ops. All tensors are contiguous NHWC.
#pragma once

#include <cstdint>

#include "core/cpu/stream.h"
#include "core/cuda/stream.h"
#include "core/tensor.h"

namespace hearth {
struct MaxPool2dOptions;
}  // namespace hearth

namespace hearth::kernels {

struct PoolShape {
  std::int64_t n = 0, h = 0, w = 0, c = 0;
  std::int64_t p = 0, q = 0;
  std::int64_t kernel_h = 1, kernel_w = 1, stride_h = 1, stride_w = 1, pad_h = 0, pad_w = 0;
  bool count_include_pad = true;
};

/// `taps` [N,P,Q,C], u8 or i32, gets the position r * kernel_w + s of each maximum in its window, unless undefined.
void max_pool2d(cpu::Stream&, const PoolShape& shape, const Tensor& x, const Tensor& y, const Tensor& taps);
void max_pool2d(cuda::Stream&, const PoolShape& shape, const Tensor& x, const Tensor& y, const Tensor& taps);
void max_pool2d_grad(cpu::Stream&, const PoolShape& shape, const Tensor& taps, const Tensor& dy, const Tensor& dx);
void max_pool2d_grad(cuda::Stream&, const PoolShape& shape, const Tensor& taps, const Tensor& dy, const Tensor& dx);
void avg_pool2d(cpu::Stream&, const PoolShape& shape, const Tensor& x, const Tensor& y);
void avg_pool2d(cuda::Stream&, const PoolShape& shape, const Tensor& x, const Tensor& y);
void avg_pool2d_grad(cpu::Stream&, const PoolShape& shape, const Tensor& dy, const Tensor& dx);
void avg_pool2d_grad(cuda::Stream&, const PoolShape& shape, const Tensor& dy, const Tensor& dx);
/// x [N, pixels, C] -> y [N, C].
void mean_pixels(cpu::Stream&, std::int64_t pixels, const Tensor& x, const Tensor& y);
void mean_pixels(cuda::Stream&, std::int64_t pixels, const Tensor& x, const Tensor& y);
void mean_pixels_grad(cpu::Stream&, std::int64_t pixels, const Tensor& dy, const Tensor& dx);
void mean_pixels_grad(cuda::Stream&, std::int64_t pixels, const Tensor& dy, const Tensor& dx);

}  // namespace hearth::kernels

namespace hearth::detail {

/// All sizes of max_pool2d(), or its errors.
kernels::PoolShape max_pool2d_shape(const Tensor& x, const MaxPool2dOptions& options);

}  // namespace hearth::detail
