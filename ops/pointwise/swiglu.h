// SPDX-License-Identifier: Apache-2.0
// The gated activation of Llama's feed-forward layers.
#pragma once

#include "core/cpu/stream.h"
#include "core/cuda/stream.h"
#include "core/tensor.h"

namespace hearth {

/// y = silu(a) b for x = [a, b] side by side along the last axis, as one projection makes both.
/// x [..., 2 C], any floating type; y is [..., C]. Saved for the gradient: x. ShapeError, DTypeError, UsageError.
/// Source: Shazeer, "GLU Variants Improve Transformer" (2020).
HEARTH_API Tensor swiglu(const Tensor& x);

namespace kernels {
/// x [rows, 2 C] and y [rows, C], contiguous.
void swiglu(cpu::Stream&, const Tensor& x, const Tensor& y);
void swiglu(cuda::Stream&, const Tensor& x, const Tensor& y);
/// dx like x.
void swiglu_grad(cpu::Stream&, const Tensor& x, const Tensor& dy, const Tensor& dx);
void swiglu_grad(cuda::Stream&, const Tensor& x, const Tensor& dy, const Tensor& dx);
}  // namespace kernels
}  // namespace hearth
