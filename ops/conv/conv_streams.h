// SPDX-License-Identifier: Apache-2.0
// The forward pass and the data gradient of a convolution of bf16 images on the processor's matrix tiles, without
// unfolding the images. For conv2d_amx.cpp.
#pragma once

#include "ops/conv/conv2d_cpu.h"

namespace hearth::kernels {

/// y or dx of images in bf16, with channels (filters for dx) in 32s and no groups. The same bits for any thread pool.
void convolve_on_tiles(const ConvProblem& problem, const Conv2dOperands& operands);

}  // namespace hearth::kernels
