// SPDX-License-Identifier: Apache-2.0
// The implementations of attention on a CUDA device; attention_cuda.cpp chooses among them.
#pragma once

#include "core/cuda/stream.h"
#include "ops/attention/attention.h"
#include "ops/attention/cuda/attention_cudnn.h"

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
inline constexpr std::int64_t max_mma_width = 128;
/// For f16 and bf16, widths of a multiple of 8 up to max_mma_width, and rows aligned to 16 bytes (attention_mma.cu).
/// As many launches.
void attention_mma(cuda::Stream&, const AttentionArguments& arguments, const Tensor& y, const Tensor& lse);
void attention_grad_mma(cuda::Stream&, const AttentionArguments& arguments, const AttentionSaved& saved,
                        const AttentionGradients& gradients);

/// The problem as cuDNN is asked for it. The gradient's: with where the gradients lie.
cuda::dnn::Attention library_problem(const AttentionArguments& arguments, const Tensor& y);
cuda::dnn::AttentionGrad library_problem(const AttentionArguments& arguments, const Tensor& y,
                                         const AttentionGradients& gradients);
/// By cuDNN (attention_library_cuda.cpp): one call, two launches more with key_lengths, one with a bias alone. The
/// gradient: a call for each share of the batch, and two launches more with key_lengths; that of a bias by the kernels
/// below.
void attention_library(cuda::Stream&, const AttentionArguments& arguments, const Tensor& y, const Tensor& lse);
void attention_grad_library(cuda::Stream&, const AttentionArguments& arguments, const AttentionSaved& saved,
                            const AttentionGradients& gradients);
/// counts [2, N], i32: the number of queries, and of keys, at least 1, of each sample (attention_library.cu).
void attention_counts(cuda::Stream&, const AttentionArguments& arguments, const Tensor& counts);
/// Rows of y without a key become 0, and +infinity in lse: those of samples of length 0, and those whose lse says so.
void attention_settle(cuda::Stream&, const AttentionArguments& arguments, const Tensor& y, const Tensor& lse);
/// Zeros for keys behind the lengths in dk and dv, and for queries without a key in dq.
void attention_settle_grad(cuda::Stream&, const AttentionArguments& arguments, const AttentionGradients& gradients);

/// delta [N, H, Tq] = dy . y of each row.
void attention_row_products(cuda::Stream&, const AttentionArguments& arguments, const AttentionSaved& saved,
                            const Tensor& delta);
/// The gradient of the bias, from those products.
void attention_bias_grad(cuda::Stream&, const AttentionArguments& arguments, const AttentionSaved& saved,
                         const Tensor& delta, const Tensor& dbias);

}  // namespace hearth::kernels
