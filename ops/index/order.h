// SPDX-License-Identifier: Apache-2.0
// Sorting places by key on the device: what makes sums over equal indices deterministic without atomics on values.
#pragma once

#include "core/cuda/stream.h"
#include "core/tensor.h"

namespace hearth::kernels {

/// The positions of keys, sorted by key; equal keys in order of position.
struct Order {
  Tensor keys;    ///< i64 [n], ascending
  Tensor places;  ///< i64 [n]
};

/// Sorts `keys`, i64 [n], each in [0, bound). The keys' own memory is used. A stable radix sort, 8 bits a pass.
Order sort_places(cuda::Stream& stream, const Tensor& keys, std::int64_t bound);

}  // namespace hearth::kernels
