// SPDX-License-Identifier: Apache-2.0
// Which elements dropout keeps, for CPU kernels: sixteen Philox blocks at a time give the 64 random words of 64
// neighbouring elements, in lanes that vectorise in whatever instruction set the calling kernel is compiled for.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "core/cpu/philox_lanes.h"
#include "core/cpu/vector_math.h"
#include "core/random.h"

namespace hearth::kernels {

/// Elements of a strip.
inline constexpr std::int64_t dropout_strip = 64;

/// An element is dropped when its word lies below this, p * 2^32.
inline std::uint32_t dropout_threshold(double p) {
  return static_cast<std::uint32_t>(std::min(std::round(p * 0x1p32), 0x1p32 - 1));
}

/// What dropout multiplies elements with.
template <class P>
struct DropoutFactors {
  RandomKey key;
  std::int64_t first;       ///< the number of element 0
  std::uint32_t threshold;  ///< 0: nothing is dropped, and the key is not used
  P scale;                  ///< of the elements that stay
};

/// The words of elements [64 strip, 64 strip + 64): word j of block 16 strip + l belongs to element 16 j + l.
HEARTH_ALWAYS_INLINE void strip_words(const RandomKey& key, std::uint64_t strip, std::uint32_t* words) {
  std::uint32_t blocks[4][16];
  for (std::uint32_t l = 0; l < 16; ++l) {
    const std::uint64_t block = strip * 16 + l;
    blocks[0][l] = static_cast<std::uint32_t>(block);
    blocks[1][l] = key.op;
    blocks[2][l] = static_cast<std::uint32_t>(key.step);
    // Steps stay below 2^48 and blocks below 2^48, so both fit into what is left of the counter.
    blocks[3][l] = static_cast<std::uint32_t>(key.step >> 32) ^ (static_cast<std::uint32_t>(block >> 32) << 16);
  }
  philox_lanes(blocks, key.seed);
  for (int j = 0; j < 4; ++j) std::copy_n(blocks[j], 16, words + 16 * j);
}

}  // namespace hearth::kernels
