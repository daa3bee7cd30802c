// SPDX-License-Identifier: Apache-2.0
// Warp operations: what the last lane to arrive computes for all.
#include "tests/emulated_gpu/warp.h"

#include <algorithm>

namespace hearth::cuda::emulate {
namespace {

template <class F>
void for_each_lane(void* const* lanes, unsigned arrived, F f) {
  for (unsigned i = 0; i < 32; ++i)
    if ((arrived >> i & 1) != 0) f(i, *static_cast<Vote*>(lanes[i]));
}

template <class T, class Join>
void reduce(void* const* lanes, unsigned arrived, Join join) {
  bool first = true;
  T total{};
  for_each_lane(lanes, arrived, [&](unsigned, const Vote& vote) {
    const T value = static_cast<T>(static_cast<unsigned>(vote.value));
    total = first ? value : join(total, value);
    first = false;
  });
  for_each_lane(lanes, arrived, [&](unsigned, Vote& vote) { vote.result = static_cast<unsigned>(total); });
}

}  // namespace

void complete_shuffle(void* const* lanes, unsigned arrived) {
  for (unsigned i = 0; i < 32; ++i) {
    if ((arrived >> i & 1) == 0) continue;
    Shuffle& mine = *static_cast<Shuffle*>(lanes[i]);
    mine.result =
        (arrived >> mine.source & 1) != 0 ? static_cast<const Shuffle*>(lanes[mine.source])->bits : ~std::uint64_t{0};
  }
}

void complete_ballot(void* const* lanes, unsigned arrived) {
  unsigned result = 0;
  for_each_lane(lanes, arrived, [&](unsigned i, const Vote& vote) { result |= (vote.value != 0 ? 1u : 0u) << i; });
  for_each_lane(lanes, arrived, [&](unsigned, Vote& vote) { vote.result = result; });
}

void complete_match(void* const* lanes, unsigned arrived) {
  for_each_lane(lanes, arrived, [&](unsigned, Vote& mine) {
    mine.result = 0;
    for_each_lane(lanes, arrived, [&](unsigned i, const Vote& other) {
      if (other.value == mine.value) mine.result |= 1u << i;
    });
  });
}

void complete_add(void* const* lanes, unsigned arrived) {
  reduce<unsigned>(lanes, arrived, [](unsigned a, unsigned b) { return a + b; });
}
void complete_and(void* const* lanes, unsigned arrived) {
  reduce<unsigned>(lanes, arrived, [](unsigned a, unsigned b) { return a & b; });
}
void complete_or(void* const* lanes, unsigned arrived) {
  reduce<unsigned>(lanes, arrived, [](unsigned a, unsigned b) { return a | b; });
}
void complete_xor(void* const* lanes, unsigned arrived) {
  reduce<unsigned>(lanes, arrived, [](unsigned a, unsigned b) { return a ^ b; });
}
void complete_signed_min(void* const* lanes, unsigned arrived) {
  reduce<int>(lanes, arrived, [](int a, int b) { return std::min(a, b); });
}
void complete_signed_max(void* const* lanes, unsigned arrived) {
  reduce<int>(lanes, arrived, [](int a, int b) { return std::max(a, b); });
}
void complete_unsigned_min(void* const* lanes, unsigned arrived) {
  reduce<unsigned>(lanes, arrived, [](unsigned a, unsigned b) { return std::min(a, b); });
}
void complete_unsigned_max(void* const* lanes, unsigned arrived) {
  reduce<unsigned>(lanes, arrived, [](unsigned a, unsigned b) { return std::max(a, b); });
}

unsigned first_of_group(int width, const Place& at) {
  if (width < 1 || width > 32 || (width & (width - 1)) != 0)
    fault("width " + std::to_string(width) + " of a shuffle; it must be 1, 2, 4, 8, 16 or 32", at);
  return lane() & ~(static_cast<unsigned>(width) - 1);
}

}  // namespace hearth::cuda::emulate
