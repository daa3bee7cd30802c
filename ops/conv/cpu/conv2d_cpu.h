// SPDX-License-Identifier: Apache-2.0
// The implementations of a convolution on the CPU, for their list in conv2d_cpu.cpp and for tests.
//
// Those of type Conv2dCandidate take images of f32 or bf16, filters of their type or f32, and b of f32; sums are f32.
// bf16 images with f32 filters: w is rounded to bf16 for the arithmetic, dw keeps the f32 sums.
#pragma once

#include "ops/conv/kernels.h"

namespace hearth::kernels {

using Conv2dCandidate = Candidate<ConvProblem, Conv2dRun>;

/// 1x1 filters: one product of pixels and filters as they are stored.
extern const Conv2dCandidate conv2d_matmul;
/// bf16 on the processor's tiles (Intel AMX). The same bits for any thread pool.
extern const Conv2dCandidate conv2d_amx;
/// 3x3 filters by Winograd's algorithm, in f32 also of bf16, but for deterministic mode. The same bits for any thread
/// pool.
extern const Conv2dCandidate conv2d_winograd;
/// The forward pass and the data gradient in bf16: own code that never multiplies the padding. The same bits for any
/// thread pool.
extern const Conv2dCandidate conv2d_direct_bf16;
/// The filter gradient in bf16: own code that pairs images. The same bits for any thread pool.
extern const Conv2dCandidate conv2d_paired_bf16;
/// The forward pass and the filter gradient of images of up to 4 channels in bf16: own code for first convolutions. The
/// same bits for any thread pool.
extern const Conv2dCandidate conv2d_stem_bf16;
/// Every pixel's taps side by side, then one product with the filters as they are stored.
extern const Conv2dCandidate conv2d_unfolded;
/// The library's own convolution.
extern const Conv2dCandidate conv2d_onednn;

/// im2col in tiles and the own product, in f32 or f64 throughout. The same bits for any thread pool.
void conv2d_im2col(const ConvProblem& problem, const Conv2dOperands& operands);

}  // namespace hearth::kernels
