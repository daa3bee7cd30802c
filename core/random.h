// SPDX-License-Identifier: Apache-2.0
// Counter-based randomness: every value is a pure function of a key and a counter, so results never
// depend on thread count, worker count or restarts.
// Source: Salmon et al., "Parallel Random Numbers: As Easy as 1, 2, 3" (SC 2011), Philox4x32-10.
#pragma once

#include <array>
#include <cmath>
#include <cstdint>

#include "core/export.h"

namespace hearth {

/// One Philox4x32-10 block: four independent 32-bit words from a 128-bit counter and a 64-bit key.
constexpr std::array<std::uint32_t, 4> philox(std::array<std::uint32_t, 4> counter, std::array<std::uint32_t, 2> key) {
  for (int round = 0; round < 10; ++round) {
    const std::uint64_t p0 = std::uint64_t{0xD2511F53u} * counter[0];
    const std::uint64_t p1 = std::uint64_t{0xCD9E8D57u} * counter[2];
    counter = {static_cast<std::uint32_t>(p1 >> 32) ^ counter[1] ^ key[0], static_cast<std::uint32_t>(p1),
               static_cast<std::uint32_t>(p0 >> 32) ^ counter[3] ^ key[1], static_cast<std::uint32_t>(p0)};
    key[0] += 0x9E3779B9u;
    key[1] += 0xBB67AE85u;
  }
  return counter;
}

/// A stream of random values addressed by (seed, stream a, stream b). Copyable; cheap to make per sample.
/// Use one purpose per (a, b): for example a = epoch, b = sample.
class HEARTH_API Random {
 public:
  Random(std::uint64_t seed, std::uint64_t a, std::uint32_t b = 0)
      : key_{static_cast<std::uint32_t>(seed), static_cast<std::uint32_t>(seed >> 32)},
        counter_{0, b, static_cast<std::uint32_t>(a), static_cast<std::uint32_t>(a >> 32)} {}

  std::uint32_t next_u32() {
    if (used_ == 4) {
      block_ = philox(counter_, key_);
      ++counter_[0];
      used_ = 0;
    }
    return block_[static_cast<std::size_t>(used_++)];
  }
  std::uint64_t next_u64() {
    const std::uint64_t high = next_u32();
    return (high << 32) | next_u32();
  }
  /// Uniform in [0, 1) with 53 bits.
  double uniform() { return static_cast<double>(next_u64() >> 11) * 0x1p-53; }
  double uniform(double low, double high) { return low + (high - low) * uniform(); }
  /// Uniform integer in [0, bound); bound >= 1. Unbiased (Lemire's rejection).
  std::uint64_t below(std::uint64_t bound) {
    while (true) {
      __extension__ using Wide = unsigned __int128;
      const Wide product = static_cast<Wide>(next_u64()) * bound;
      const std::uint64_t low = static_cast<std::uint64_t>(product);
      if (low >= bound || low >= (0 - bound) % bound) return static_cast<std::uint64_t>(product >> 64);
    }
  }
  /// Standard normal by Box-Muller.
  double normal() {
    const double u = 1.0 - uniform();
    const double v = uniform();
    return std::sqrt(-2.0 * std::log(u)) * std::cos(6.283185307179586476925 * v);
  }

 private:
  std::array<std::uint32_t, 2> key_;
  std::array<std::uint32_t, 4> counter_;
  std::array<std::uint32_t, 4> block_{};
  int used_ = 4;
};

/// The samples of a step that one forward pass sees, where a step's batch is cut into several.
struct RandomPart {
  std::int64_t first = 0;  ///< samples of the step before these
  std::int64_t count = 0;  ///< 0: all of them
};

/// Names the randomness of one op call: the run's seed, the step, and the op's number within the step.
struct RandomKey {
  std::uint64_t seed = 0;
  std::uint64_t step = 0;
  std::uint32_t op = 0;
  RandomPart part = {};

  /// The number that element 0 of `elements` has in the whole batch, where each sample has as many as the others; 0
  /// for what does not divide into the samples. So a batch draws the same values in one piece or in many.
  std::int64_t first_element(std::int64_t elements) const {
    return part.count > 0 && elements % part.count == 0 ? elements / part.count * part.first : 0;
  }
};

/// The key of the next random op on this thread; op numbers count up from 0 within a RandomScope.
HEARTH_API RandomKey next_random_key();

/// Starts the keys of this thread anew from (seed, step 0), for programs that have no RandomScope.
HEARTH_API void manual_seed(std::uint64_t seed);

/// The key that the next random op will get; it stays for that op.
HEARTH_API RandomKey random_position();

/// Ties random ops on this thread to (seed, step) for the life of the object; a replayed step draws the same values.
class HEARTH_API RandomScope {
 public:
  RandomScope(std::uint64_t seed, std::uint64_t step, RandomPart part = {});
  /// From this key on, to draw again what was drawn there.
  explicit RandomScope(const RandomKey& position);
  ~RandomScope();
  RandomScope(const RandomScope&) = delete;
  RandomScope& operator=(const RandomScope&) = delete;

 private:
  RandomKey previous_;
};

}  // namespace hearth
