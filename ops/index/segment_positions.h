// SPDX-License-Identifier: Apache-2.0
// Positions within segments of a row.
#pragma once

#include "core/cpu/stream.h"
#include "core/cuda/stream.h"
#include "core/tensor.h"

namespace hearth {

/// How far each position of a row lies behind the first of its segment. segments i32 [N, T, 2], as attention() takes
/// them; the result i32 [N, T] on their device, from 0 to the position itself whatever the segments say. No gradient.
/// ShapeError, DTypeError.
HEARTH_API Tensor segment_positions(const Tensor& segments);

namespace kernels {

/// segments [N, T, 2] and positions [N, T], i32, contiguous.
void segment_positions(cpu::Stream&, const Tensor& segments, const Tensor& positions);
void segment_positions(cuda::Stream&, const Tensor& segments, const Tensor& positions);

}  // namespace kernels
}  // namespace hearth
