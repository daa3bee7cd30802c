// SPDX-License-Identifier: Apache-2.0
// The implementations of attention on a CUDA device; attention_cuda.cpp chooses among them.
#pragma once

#include "hearth/core/cuda/stream.h"
#include "hearth/ops/attention/attention.h"

namespace hearth::kernels {

/// What the gradient's kernels are given beside the problem. y and dy: views like q; lse [N, H, Tq].
struct AttentionSaved {
  Tensor y, lse, dy;
};

/// For every type and width (attention.cu). Forward one launch; the gradient three, and one or two for the bias.
void attention_portable(cuda::Stream&, const AttentionArguments& arguments, const Tensor& y, const Tensor& lse);
void attention_grad_portable(cuda::Stream&, const AttentionArguments& arguments, const AttentionSaved& saved,
                             const AttentionGradients& gradients);

/// The widest heads that the tensor cores' kernels take.
inline constexpr std::int64_t most_mma_width = 128;
/// For f16 and bf16, widths of a multiple of 8 up to most_mma_width, and rows aligned to 16 bytes (attention_mma.cu).
/// As many launches.
void attention_mma(cuda::Stream&, const AttentionArguments& arguments, const Tensor& y, const Tensor& lse);
void attention_grad_mma(cuda::Stream&, const AttentionArguments& arguments, const AttentionSaved& saved,
                        const AttentionGradients& gradients);

/// delta [N, H, Tq] = dy . y of each row.
void attention_row_products(cuda::Stream&, const AttentionArguments& arguments, const AttentionSaved& saved,
                            const Tensor& delta);
/// The gradient of the bias, from those products.
void attention_bias_grad(cuda::Stream&, const AttentionArguments& arguments, const AttentionSaved& saved,
                         const Tensor& delta, const Tensor& dbias);

}  // namespace hearth::kernels
