// SPDX-License-Identifier: Apache-2.0
// Squared ReLU, y = max(x, 0)^2, an op of one's own: the struct that built-in ops are made of, with a kernel for each
// kind of device. Source: So et al., "Primer" (2021), arXiv:2109.08668.
#pragma once

#include <hearth/core/cpu/stream.h>
#include <hearth/core/cuda/stream.h>
#include <hearth/core/tensor.h>

/// f32 or f64, any shape; DTypeError for other types.
hearth::Tensor squared_relu(const hearth::Tensor& x);

namespace own_kernels {

// All tensors are contiguous and of one shape, type and device. A kernel for another device is an overload more.
void squared_relu(hearth::cpu::Stream& stream, const hearth::Tensor& x, const hearth::Tensor& y);
void squared_relu(hearth::cuda::Stream& stream, const hearth::Tensor& x, const hearth::Tensor& y);
/// dx = 2 max(x, 0) dy.
void squared_relu_grad(hearth::cpu::Stream& stream, const hearth::Tensor& x, const hearth::Tensor& dy,
                       const hearth::Tensor& dx);
void squared_relu_grad(hearth::cuda::Stream& stream, const hearth::Tensor& x, const hearth::Tensor& dy,
                       const hearth::Tensor& dx);

}  // namespace own_kernels
