// SPDX-License-Identifier: Apache-2.0
// Several Philox blocks side by side, in lanes that vectorise in whatever instruction set the calling kernel is
// compiled for.
#pragma once

#include <cstdint>

#include "core/cpu/vector_math.h"

namespace hearth::kernels {

/// Word j of lane l of `counters` becomes word j of philox() of core/random.h for lane l's counter, with `seed` as key.
template <int lanes>
HEARTH_ALWAYS_INLINE void philox_lanes(std::uint32_t (&counters)[4][lanes], std::uint64_t seed) {
  auto key0 = static_cast<std::uint32_t>(seed), key1 = static_cast<std::uint32_t>(seed >> 32);
  for (int round = 0; round < 10; ++round) {
#pragma omp simd
    for (int l = 0; l < lanes; ++l) {
      const std::uint64_t p0 = std::uint64_t{0xD2511F53u} * counters[0][l];
      const std::uint64_t p1 = std::uint64_t{0xCD9E8D57u} * counters[2][l];
      counters[0][l] = static_cast<std::uint32_t>(p1 >> 32) ^ counters[1][l] ^ key0;
      counters[2][l] = static_cast<std::uint32_t>(p0 >> 32) ^ counters[3][l] ^ key1;
      counters[1][l] = static_cast<std::uint32_t>(p1);
      counters[3][l] = static_cast<std::uint32_t>(p0);
    }
    key0 += 0x9E3779B9u;
    key1 += 0xBB67AE85u;
  }
}

}  // namespace hearth::kernels
