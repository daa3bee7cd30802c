// SPDX-License-Identifier: Apache-2.0
// Sums of gradients.
#pragma once

#include "core/cpu/stream.h"
#include "core/cuda/stream.h"
#include "core/tensor.h"

namespace hearth::kernels {

/// sum += term, element by element; both contiguous and of one floating type. 16-bit types add in f32 and round once.
void add_into(cpu::Stream&, const Tensor& sum, const Tensor& term);
void add_into(cuda::Stream&, const Tensor& sum, const Tensor& term);

}  // namespace hearth::kernels
