// SPDX-License-Identifier: Apache-2.0
// CUDA's warp operations. Each hands in a small record, and the last lane of the mask to arrive computes the results of
// all, so no lane can overwrite what a slower lane has yet to read. What a lane gets from a lane that did not take part
// is undefined in CUDA; here it is all ones, which is NaN in each floating type.
#pragma once

#include <cstdint>
#include <cstring>
#include <type_traits>

#include "tests/emulated_gpu/engine.h"

namespace hearth::cuda::emulate {

/// A value handed from lane to lane, as bits. `result` may alias nothing: it is written when all lanes are there.
struct Shuffle {
  std::uint64_t bits;
  unsigned source;
  std::uint64_t result;
};
void complete_shuffle(void* const* lanes, unsigned arrived);

struct Vote {
  std::uint64_t value;
  unsigned result;
};
void complete_ballot(void* const* lanes, unsigned arrived);
void complete_match(void* const* lanes, unsigned arrived);
void complete_add(void* const* lanes, unsigned arrived);
void complete_and(void* const* lanes, unsigned arrived);
void complete_or(void* const* lanes, unsigned arrived);
void complete_xor(void* const* lanes, unsigned arrived);
void complete_signed_min(void* const* lanes, unsigned arrived);
void complete_signed_max(void* const* lanes, unsigned arrived);
void complete_unsigned_min(void* const* lanes, unsigned arrived);
void complete_unsigned_max(void* const* lanes, unsigned arrived);

template <class T>
T shuffle(unsigned mask, T value, unsigned source, const char* what, const Place& at) {
  static_assert(std::is_arithmetic_v<T> && (sizeof(T) == 4 || sizeof(T) == 8),
                "CUDA shuffles 4 or 8 bytes of a number");
  Shuffle mine{0, source, 0};
  std::memcpy(&mine.bits, &value, sizeof(T));
  warp_operation(mask, what, &mine, complete_shuffle, at);
  std::memcpy(&value, &mine.result, sizeof(T));
  return value;
}

inline unsigned vote(unsigned mask, std::uint64_t value, const char* what, Complete complete, const Place& at) {
  Vote mine{value, 0};
  warp_operation(mask, what, &mine, complete, at);
  return mine.result;
}

/// The first lane of the group of `width` lanes that this lane is in. InternalError unless width is 1, 2, 4, ... 32.
unsigned first_of_group(int width, const Place& at);

}  // namespace hearth::cuda::emulate

#define HEARTH_HERE const std::source_location& at = std::source_location::current()

inline void __syncwarp(unsigned mask = 0xffffffffu, HEARTH_HERE) {
  hearth::cuda::emulate::warp_operation(mask, "__syncwarp", nullptr, nullptr, at);
}

template <class T>
T __shfl_sync(unsigned mask, T value, int source, int width = 32, HEARTH_HERE) {
  const unsigned first = hearth::cuda::emulate::first_of_group(width, at);
  const unsigned from = first + (static_cast<unsigned>(source) & static_cast<unsigned>(width - 1));
  return hearth::cuda::emulate::shuffle(mask, value, from, "__shfl_sync", at);
}
template <class T>
T __shfl_up_sync(unsigned mask, T value, unsigned delta, int width = 32, HEARTH_HERE) {
  const unsigned first = hearth::cuda::emulate::first_of_group(width, at), lane = hearth::cuda::emulate::lane();
  return hearth::cuda::emulate::shuffle(mask, value, delta <= lane - first ? lane - delta : lane, "__shfl_up_sync", at);
}
template <class T>
T __shfl_down_sync(unsigned mask, T value, unsigned delta, int width = 32, HEARTH_HERE) {
  const unsigned first = hearth::cuda::emulate::first_of_group(width, at), lane = hearth::cuda::emulate::lane();
  const unsigned last = first + static_cast<unsigned>(width) - 1;
  return hearth::cuda::emulate::shuffle(mask, value, delta <= last - lane ? lane + delta : lane, "__shfl_down_sync",
                                        at);
}
template <class T>
T __shfl_xor_sync(unsigned mask, T value, int lanes, int width = 32, HEARTH_HERE) {
  const unsigned first = hearth::cuda::emulate::first_of_group(width, at), lane = hearth::cuda::emulate::lane();
  // A lane of an earlier group may be read, one of a later group may not.
  const unsigned from = lane ^ static_cast<unsigned>(lanes);
  const bool valid = from < first + static_cast<unsigned>(width);
  return hearth::cuda::emulate::shuffle(mask, value, valid ? from : lane, "__shfl_xor_sync", at);
}

inline unsigned __ballot_sync(unsigned mask, int vote, HEARTH_HERE) {
  return hearth::cuda::emulate::vote(mask, vote != 0, "__ballot_sync", hearth::cuda::emulate::complete_ballot, at);
}
inline int __any_sync(unsigned mask, int vote, HEARTH_HERE) {
  return hearth::cuda::emulate::vote(mask, vote != 0, "__any_sync", hearth::cuda::emulate::complete_ballot, at) != 0;
}
inline int __all_sync(unsigned mask, int vote, HEARTH_HERE) {
  return hearth::cuda::emulate::vote(mask, vote == 0, "__all_sync", hearth::cuda::emulate::complete_ballot, at) == 0;
}
/// The lanes that handed in the same bits.
template <class T>
unsigned __match_any_sync(unsigned mask, T value, HEARTH_HERE) {
  static_assert(std::is_arithmetic_v<T> && (sizeof(T) == 4 || sizeof(T) == 8), "CUDA matches 4 or 8 bytes of a number");
  std::uint64_t bits = 0;
  std::memcpy(&bits, &value, sizeof(T));
  return hearth::cuda::emulate::vote(mask, bits, "__match_any_sync", hearth::cuda::emulate::complete_match, at);
}

#define HEARTH_WARP_REDUCTION(type, word, complete)                                                                   \
  inline type word(unsigned mask, type value, HEARTH_HERE) {                                                          \
    return static_cast<type>(                                                                                         \
        hearth::cuda::emulate::vote(mask, static_cast<unsigned>(value), #word, hearth::cuda::emulate::complete, at)); \
  }
HEARTH_WARP_REDUCTION(unsigned, __reduce_add_sync, complete_add)
HEARTH_WARP_REDUCTION(int, __reduce_add_sync, complete_add)
HEARTH_WARP_REDUCTION(unsigned, __reduce_min_sync, complete_unsigned_min)
HEARTH_WARP_REDUCTION(int, __reduce_min_sync, complete_signed_min)
HEARTH_WARP_REDUCTION(unsigned, __reduce_max_sync, complete_unsigned_max)
HEARTH_WARP_REDUCTION(int, __reduce_max_sync, complete_signed_max)
HEARTH_WARP_REDUCTION(unsigned, __reduce_and_sync, complete_and)
HEARTH_WARP_REDUCTION(unsigned, __reduce_or_sync, complete_or)
HEARTH_WARP_REDUCTION(unsigned, __reduce_xor_sync, complete_xor)
#undef HEARTH_WARP_REDUCTION
#undef HEARTH_HERE
