// SPDX-License-Identifier: Apache-2.0
// Blocks of elements in the type that kernels compute in. A loop that walks, broadcasts or shares work among threads is
// compiled once; it calls functions of a block, which are all that differs by op and ISA level. 16-bit elements are
// converted in strips of the nearest cache; others are computed in place.
#pragma once

#include <algorithm>
#include <cstdint>
#include <type_traits>

#include "core/half.h"

namespace hearth::cpu {

/// Elements of a block of which an operand is in a strip: a few strips fit into the nearest cache.
inline constexpr std::int64_t block_size = 512;

/// strip[i] = x[i] for n elements.
void upcast(const f16* x, float* strip, std::int64_t n);
void upcast(const bf16* x, float* strip, std::int64_t n);
/// y[i] = strip[i], rounded to nearest even, for n elements.
void cast_down(const float* strip, f16* y, std::int64_t n);
void cast_down(const float* strip, bf16* y, std::int64_t n);

/// Whether kernels compute in T itself.
template <class T>
inline constexpr bool computed_in = std::is_same_v<T, acc_t<T>>;

/// Room for a block, where T needs it.
template <class T>
struct Strip {
  alignas(64) acc_t<T> values[computed_in<T> ? 1 : block_size];
};

/// n elements of x as they are computed with: x itself, or the strip.
template <class T>
const acc_t<T>* read_block(const T* x, std::int64_t n, Strip<T>& strip) {
  if constexpr (computed_in<T>) {
    return x;
  } else {
    upcast(x, strip.values, n);
    return strip.values;
  }
}

/// Where elements of y are computed: y itself, or the strip, which write_block() converts.
template <class T>
acc_t<T>* block_of(T* y, Strip<T>& strip) {
  if constexpr (computed_in<T>)
    return y;
  else
    return strip.values;
}
template <class T>
void write_block(const Strip<T>& strip, T* y, std::int64_t n) {
  if constexpr (!computed_in<T>) cast_down(strip.values, y, n);
}

/// f(first element, count) for the blocks of [begin, end).
template <class F>
void each_block(std::int64_t begin, std::int64_t end, const F& f) {
  for (std::int64_t at = begin; at < end; at += block_size) f(at, std::min(block_size, end - at));
}
/// The same, of all elements at once where T is computed in.
template <class T, class F>
void each_block(std::int64_t begin, std::int64_t end, const F& f) {
  if constexpr (computed_in<T>)
    f(begin, end - begin);
  else
    each_block(begin, end, f);
}

}  // namespace hearth::cpu
