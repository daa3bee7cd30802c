// SPDX-License-Identifier: Apache-2.0
// Lengths of padded rows.
#pragma once

#include <cstdint>

#include "core/cpu/stream.h"
#include "core/cuda/stream.h"
#include "core/tensor.h"

namespace hearth {

/// How long each row of ids is without the padding at its end: one more than the last position whose id is not `pad`,
/// and 0 for a row of nothing else. ids [N, T], i32 or i64; the result i32 [N] on their device. No gradient.
/// ShapeError, DTypeError.
HEARTH_API Tensor row_lengths(const Tensor& ids, std::int64_t pad);

namespace kernels {

/// ids [N, T] and lengths i32 [N], contiguous.
void row_lengths(cpu::Stream&, const Tensor& ids, std::int64_t pad, const Tensor& lengths);
void row_lengths(cuda::Stream&, const Tensor& ids, std::int64_t pad, const Tensor& lengths);

}  // namespace kernels
}  // namespace hearth
