// SPDX-License-Identifier: Apache-2.0
// The implementations of window_attention on a CUDA device; window_attention_cuda.cpp chooses among them.
#pragma once

#include "core/cuda/stream.h"
#include "ops/attention/window_attention.h"

namespace hearth::kernels {

/// For every type, width and window whose rows a block's shared memory holds (window_attention.cu). Forward one launch,
/// the gradient two; one where neither the table nor the padding has a gradient.
void window_attention_portable(cuda::Stream&, const WindowAttentionArguments& arguments, const Tensor& y);
void window_attention_grad_portable(cuda::Stream&, const WindowAttentionArguments& arguments, const Tensor& dy,
                                    const WindowAttentionGradients& gradients);

/// For f16 and bf16, heads of a multiple of 8 channels, and rows aligned to 16 bytes (window_attention_mma.cu). As many
/// launches.
void window_attention_mma(cuda::Stream&, const WindowAttentionArguments& arguments, const Tensor& y);
void window_attention_grad_mma(cuda::Stream&, const WindowAttentionArguments& arguments, const Tensor& dy,
                               const WindowAttentionGradients& gradients);

/// Shared memory in bytes that a block of either pass needs at most.
std::size_t window_attention_mma_shared(std::int64_t window, std::int64_t width);
std::size_t window_attention_portable_shared(DType dtype, std::int64_t window, std::int64_t width);

}  // namespace hearth::kernels
