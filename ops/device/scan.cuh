// SPDX-License-Identifier: Apache-2.0
// Exclusive sums.
#pragma once

#include "core/cuda/kernel.h"

namespace hearth::cuda {

/// Sums of a warp's values up to and without each lane's.
__device__ __forceinline__ std::int64_t warp_sum_before(std::int64_t value) {
  std::int64_t sum = value;
  for (int step = 1; step < warp_size; step *= 2) {
    const std::int64_t below = __shfl_up_sync(all_lanes, sum, step);
    if (lane_id() >= step) sum += below;
  }
  return sum - value;
}

/// Replaces each of n counts by the sum of those before it, and gives every thread the sum of all. By the `threads` of
/// a block together; reads and writes each count once.
template <int threads>
__device__ std::int64_t sum_before(std::int64_t* counts, std::int64_t n) {
  constexpr int warps = threads / warp_size;
  HEARTH_SHARED(std::int64_t, warp_sums, [warps]);
  const int t = static_cast<int>(threadIdx.x), warp = t / warp_size;
  std::int64_t carry = 0;
  for (std::int64_t first = 0; first < n; first += threads) {
    const std::int64_t value = first + t < n ? counts[first + t] : 0;
    std::int64_t before = warp_sum_before(value);
    if (lane_id() == warp_size - 1) warp_sums[warp] = before + value;
    __syncthreads();
    std::int64_t total = 0;
    for (int w = 0; w < warps; ++w) {
      if (w == warp) before += total;
      total += warp_sums[w];
    }
    if (first + t < n) counts[first + t] = carry + before;
    carry += total;
    __syncthreads();
  }
  return carry;
}

}  // namespace hearth::cuda
