// SPDX-License-Identifier: Apache-2.0
// Which elements dropout keeps, for CPU kernels: sixteen Philox blocks at a time give the 64 random words of 64
// neighbouring elements, in lanes that vectorise in whatever instruction set the calling kernel is compiled for.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

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
/// The same function as philox() of core/random.h, sixteen counters side by side.
HEARTH_ALWAYS_INLINE void strip_words(const RandomKey& key, std::uint64_t strip, std::uint32_t* words) {
  std::uint32_t c0[16], c1[16], c2[16], c3[16];
  for (std::uint32_t l = 0; l < 16; ++l) {
    const std::uint64_t block = strip * 16 + l;
    c0[l] = static_cast<std::uint32_t>(block);
    c1[l] = key.op;
    c2[l] = static_cast<std::uint32_t>(key.step);
    // Steps stay below 2^48 and blocks below 2^48, so both fit into what is left of the counter.
    c3[l] = static_cast<std::uint32_t>(key.step >> 32) ^ (static_cast<std::uint32_t>(block >> 32) << 16);
  }
  std::uint32_t k0 = static_cast<std::uint32_t>(key.seed), k1 = static_cast<std::uint32_t>(key.seed >> 32);
  for (int round = 0; round < 10; ++round) {
#pragma omp simd
    for (int l = 0; l < 16; ++l) {
      const std::uint64_t p0 = std::uint64_t{0xD2511F53u} * c0[l];
      const std::uint64_t p1 = std::uint64_t{0xCD9E8D57u} * c2[l];
      c0[l] = static_cast<std::uint32_t>(p1 >> 32) ^ c1[l] ^ k0;
      c2[l] = static_cast<std::uint32_t>(p0 >> 32) ^ c3[l] ^ k1;
      c1[l] = static_cast<std::uint32_t>(p1);
      c3[l] = static_cast<std::uint32_t>(p0);
    }
    k0 += 0x9E3779B9u;
    k1 += 0xBB67AE85u;
  }
  std::copy_n(c0, 16, words);
  std::copy_n(c1, 16, words + 16);
  std::copy_n(c2, 16, words + 32);
  std::copy_n(c3, 16, words + 48);
}

}  // namespace hearth::kernels
