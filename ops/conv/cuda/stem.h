// SPDX-License-Identifier: Apache-2.0
// Tensor-core kernels for the first convolution of a model, whose images have few channels.
#pragma once

#include <cstddef>
#include <string>

#include "core/cuda/stream.h"
#include "ops/conv/kernels.h"
#include "ops/image/padded_images.h"

namespace hearth::kernels {

using detail::stem_channels;

/// Steps of four taps of a filter's row. Patches begin at an even pixel, a tap earlier where the padding is odd.
inline int stem_steps(const ConvShape& shape) { return static_cast<int>((shape.s + shape.pad_w % 2 + 3) / 4); }

/// Why these kernels do not take it, on a device whose blocks may have so many bytes of shared memory; or empty.
std::string stem_unsupported(const ConvProblem& problem, std::size_t shared_memory);

/// forward or backward_weights: x [n, h, w, 4], w [k, r, s, c] and y of one 16-bit type, x and y at addresses that are
/// multiples of 16; the gradient w may be f32.
void conv2d_stem(cuda::Stream&, const ConvProblem& problem, const Conv2dOperands& operands);

}  // namespace hearth::kernels
