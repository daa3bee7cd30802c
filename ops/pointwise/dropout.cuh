// SPDX-License-Identifier: Apache-2.0
// Which elements dropout keeps, for kernels. Word j of Philox block 16 s + l belongs to the element numbered
// 64 s + 16 j + l, as on the CPU (dropout_strip.h). For kernel sources only.
#pragma once

#include <algorithm>
#include <cmath>

#include "core/cuda/graph.h"
#include "core/cuda/kernel.h"
#include "core/random.h"

namespace hearth::kernels {

struct DropoutDraws {
  RandomKey key;
  const std::uint64_t* step;  ///< where a recorded step finds its number; else null
  std::int64_t first_number;  ///< that of element 0
  std::uint32_t threshold;    ///< an element is dropped when its word lies below; 0: none is

  __device__ std::array<std::uint32_t, 4> words(std::uint64_t block) const {
    const std::uint64_t now = step != nullptr ? *step : key.step;
    // Steps stay below 2^48 and blocks below 2^48, so both fit into the counter.
    return philox({static_cast<std::uint32_t>(block), key.op, static_cast<std::uint32_t>(now),
                   static_cast<std::uint32_t>(now >> 32) ^ (static_cast<std::uint32_t>(block >> 32) << 16)},
                  {static_cast<std::uint32_t>(key.seed), static_cast<std::uint32_t>(key.seed >> 32)});
  }
  /// Whether one element stays.
  __device__ bool keeps(std::int64_t element) const {
    if (threshold == 0) return true;
    const auto number = static_cast<std::uint64_t>(first_number + element);
    const auto word = words(number / 64 * 16 + number % 16);
    // Not an index into them, which would put them into local memory.
    const std::uint64_t which = number % 64 / 16;
    return (which < 2 ? which == 0 ? word[0] : word[1] : which == 2 ? word[2] : word[3]) >= threshold;
  }
  /// f(block, element) for this thread's share of the blocks that elements [begin, begin + count) need: word j of
  /// `block` belongs to begin + element + 16 j, which may lie outside.
  template <class F>
  __device__ void each_block(std::int64_t begin, std::int64_t count, std::int64_t index, std::int64_t threads,
                             F&& f) const {
    const std::int64_t skipped = (first_number + begin) / 64, in_strip = (first_number + begin) % 64;
    const std::int64_t blocks = count == 0 ? 0 : (in_strip + count + 63) / 64 * 16;
    for (std::int64_t block = index; block < blocks; block += threads)
      f(static_cast<std::uint64_t>(skipped * 16 + block), block / 16 * 64 + block % 16 - in_strip);
  }
};

/// The draws of dropout with probability p over `elements` elements.
inline DropoutDraws dropout_draws(cuda::Stream& stream, const RandomKey& key, double p, std::int64_t elements) {
  return {key, cuda::recorded_random_step(stream), key.first_element(elements),
          static_cast<std::uint32_t>(std::min(std::round(p * 0x1p32), 0x1p32 - 1))};
}

}  // namespace hearth::kernels
