// SPDX-License-Identifier: Apache-2.0
// The implementations of attention and window_attention on the CPU; candidates_cpu.cpp chooses among them.
#pragma once

#include "core/cpu/stream.h"
#include "ops/attention/attention.h"
#include "ops/attention/window_attention.h"

namespace hearth::kernels {

/// Query by query, without dropout: the few queries of a step of decoding leave most lanes of a block idle.
void attention_rows(cpu::Stream&, const AttentionArguments& arguments, const Tensor& y, const Tensor& lse);
/// Block by block, of every type.
void attention_portable(cpu::Stream&, const AttentionArguments& arguments, const Tensor& y, const Tensor& lse);
void attention_grad_portable(cpu::Stream&, const AttentionArguments& arguments, const Tensor& y, const Tensor& lse,
                             const Tensor& dy, const AttentionGradients& gradients);
/// The same of bf16 by the processor's products of pairs, where cpu::amx::has_bf16_vectors().
void attention_avx512_bf16(cpu::Stream&, const AttentionArguments& arguments, const Tensor& y, const Tensor& lse);
void attention_grad_avx512_bf16(cpu::Stream&, const AttentionArguments& arguments, const Tensor& y, const Tensor& lse,
                                const Tensor& dy, const AttentionGradients& gradients);

/// Window by window, of every type; likewise.
void window_attention_portable(cpu::Stream&, const WindowAttentionArguments& arguments, const Tensor& y);
void window_attention_grad_portable(cpu::Stream&, const WindowAttentionArguments& arguments, const Tensor& dy,
                                    const WindowAttentionGradients& gradients);
void window_attention_avx512_bf16(cpu::Stream&, const WindowAttentionArguments& arguments, const Tensor& y);
void window_attention_grad_avx512_bf16(cpu::Stream&, const WindowAttentionArguments& arguments, const Tensor& dy,
                                       const WindowAttentionGradients& gradients);

}  // namespace hearth::kernels
