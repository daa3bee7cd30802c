// SPDX-License-Identifier: Apache-2.0
// The implementations of window_attention on a CUDA device; window_attention_cuda.cpp chooses among them.
#pragma once

#include "hearth/core/cuda/stream.h"
#include "hearth/ops/attention/window_attention.h"

namespace hearth::kernels {

/// For every type, width and window (window_attention.cu). Forward one launch, the gradient two; one where neither the
/// table nor the padding has a gradient.
void window_attention_portable(cuda::Stream&, const WindowAttentionArguments& arguments, const Tensor& y);
void window_attention_grad_portable(cuda::Stream&, const WindowAttentionArguments& arguments, const Tensor& dy,
                                    const WindowAttentionGradients& gradients);

/// The largest windows that the tensor cores' kernels take.
inline constexpr std::int64_t most_mma_window = 8;
/// For f16 and bf16, heads of a multiple of 8 channels, windows up to most_mma_window, and rows aligned to 16 bytes
/// (window_attention_mma.cu). As many launches.
void window_attention_mma(cuda::Stream&, const WindowAttentionArguments& arguments, const Tensor& y);
void window_attention_grad_mma(cuda::Stream&, const WindowAttentionArguments& arguments, const Tensor& dy,
                               const WindowAttentionGradients& gradients);

}  // namespace hearth::kernels
