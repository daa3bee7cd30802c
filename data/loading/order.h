// SPDX-License-Identifier: Apache-2.0
// The order samples are visited in: a pure function of (size, seed, epoch).
#pragma once

#include <cstdint>
#include <vector>

#include "core/random.h"

namespace hearth::data {

/// What a run's seed is spent on inside the data module; each purpose draws from streams of its own.
enum class Purpose : std::uint64_t { order = 1, augment = 2, mixup = 3, pixels = 4, windows = 5, masks = 6 };

/// The random stream of (seed, purpose, a, b). Purposes are kept apart by mixing them into the key (SplitMix64's
/// finaliser).
inline Random random_of(std::uint64_t seed, Purpose purpose, std::uint64_t a, std::uint32_t b = 0) {
  std::uint64_t key = seed + static_cast<std::uint64_t>(purpose) * 0x9e3779b97f4a7c15u;
  key = (key ^ (key >> 30)) * 0xbf58476d1ce4e5b9u;
  key = (key ^ (key >> 27)) * 0x94d049bb133111ebu;
  return Random(key ^ (key >> 31), a, b);
}

/// A uniformly drawn permutation of 0..size-1 (Fisher-Yates).
inline std::vector<std::int64_t> shuffled_order(std::int64_t size, std::uint64_t seed, std::uint64_t epoch) {
  std::vector<std::int64_t> order(static_cast<std::size_t>(size));
  for (std::int64_t i = 0; i < size; ++i) order[static_cast<std::size_t>(i)] = i;
  Random random = random_of(seed, Purpose::order, epoch);
  for (std::size_t i = order.size(); i > 1; --i) std::swap(order[i - 1], order[random.below(i)]);
  return order;
}

}  // namespace hearth::data
