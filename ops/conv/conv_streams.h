// SPDX-License-Identifier: Apache-2.0
// The convolution of bf16 images on the processor's matrix tiles, without unfolding the images. For conv2d_amx.cpp.
#pragma once

#include "core/half.h"
#include "ops/conv/conv2d_cpu.h"

namespace hearth::kernels {

/// y or dx of images in bf16, with channels (filters for dx) in 32s and no groups. The same bits for any thread pool.
void convolve_on_tiles(const ConvProblem& problem, const Conv2dOperands& operands);

/// dw, in f32 or bf16, of images in bf16 with channels in 32s and no groups. The same bits for any thread pool.
template <class W>
void filter_gradient_on_tiles(const ConvShape& shape, const bf16* x, const bf16* dy, W* dw);

}  // namespace hearth::kernels
