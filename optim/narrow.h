// SPDX-License-Identifier: Apache-2.0
// The narrow copy of updated values, written by the update itself.
#pragma once

#include <cstdint>

#include "hearth/core/tensor.h"

namespace hearth::kernels {

/// narrow[begin, end) = values[begin, end) rounded, on the calling thread: for updates on the CPU, one piece at a time
/// while its values are in the cache. Does nothing where `narrow` is undefined. values f32, narrow f16 or bf16.
void narrow_piece(const Tensor& values, const Tensor& narrow, std::int64_t begin, std::int64_t end);

}  // namespace hearth::kernels
