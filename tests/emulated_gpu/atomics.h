// SPDX-License-Identifier: Apache-2.0
// CUDA's atomics. Threads take turns only where they wait, so a plain read and write is atomic.
#pragma once

#include <algorithm>
#include <cstring>
#include <type_traits>

#include "tests/emulated_gpu/access.h"

namespace hearth::cuda::emulate {

/// Applies f to what lies at p and returns what lay there.
template <class T, class F>
T change(T* p, F f) {
  [[maybe_unused]] const AtomicAccess access(p, sizeof(T));
  const T old = *p;
  *p = f(old);
  return old;
}

template <class T>
inline constexpr bool is_atomic_integer = std::is_same_v<T, int> || std::is_same_v<T, unsigned> ||
                                          std::is_same_v<T, unsigned long long> || std::is_same_v<T, unsigned long>;
template <class T>
inline constexpr bool is_atomic_number = is_atomic_integer<T> || std::is_same_v<T, float> || std::is_same_v<T, double>;
template <class T>
inline constexpr bool has_atomic_order = is_atomic_integer<T> || std::is_same_v<T, long long>;

}  // namespace hearth::cuda::emulate

template <class T>
T atomicAdd(T* p, std::type_identity_t<T> value) {
  static_assert(hearth::cuda::emulate::is_atomic_number<T>,
                "atomicAdd: int, unsigned, unsigned long long, float or double");
  return hearth::cuda::emulate::change(p, [=](T old) { return static_cast<T>(old + value); });
}
template <class T>
T atomicSub(T* p, std::type_identity_t<T> value) {
  static_assert(std::is_same_v<T, int> || std::is_same_v<T, unsigned>, "atomicSub: int or unsigned");
  return hearth::cuda::emulate::change(p, [=](T old) { return static_cast<T>(old - value); });
}
template <class T>
T atomicMin(T* p, std::type_identity_t<T> value) {
  static_assert(hearth::cuda::emulate::has_atomic_order<T>, "atomicMin: int, unsigned or (unsigned) long long");
  return hearth::cuda::emulate::change(p, [=](T old) { return std::min(old, value); });
}
template <class T>
T atomicMax(T* p, std::type_identity_t<T> value) {
  static_assert(hearth::cuda::emulate::has_atomic_order<T>, "atomicMax: int, unsigned or (unsigned) long long");
  return hearth::cuda::emulate::change(p, [=](T old) { return std::max(old, value); });
}
template <class T>
T atomicAnd(T* p, std::type_identity_t<T> value) {
  static_assert(hearth::cuda::emulate::is_atomic_integer<T>, "atomicAnd: int, unsigned or unsigned long long");
  return hearth::cuda::emulate::change(p, [=](T old) { return old & value; });
}
template <class T>
T atomicOr(T* p, std::type_identity_t<T> value) {
  static_assert(hearth::cuda::emulate::is_atomic_integer<T>, "atomicOr: int, unsigned or unsigned long long");
  return hearth::cuda::emulate::change(p, [=](T old) { return old | value; });
}
template <class T>
T atomicXor(T* p, std::type_identity_t<T> value) {
  static_assert(hearth::cuda::emulate::is_atomic_integer<T>, "atomicXor: int, unsigned or unsigned long long");
  return hearth::cuda::emulate::change(p, [=](T old) { return old ^ value; });
}
template <class T>
T atomicExch(T* p, std::type_identity_t<T> value) {
  static_assert(hearth::cuda::emulate::is_atomic_number<T> && !std::is_same_v<T, double>,
                "atomicExch: int, unsigned, unsigned long long or float");
  return hearth::cuda::emulate::change(p, [=](T) { return value; });
}
template <class T>
T atomicCAS(T* p, std::type_identity_t<T> expected, std::type_identity_t<T> value) {
  static_assert(hearth::cuda::emulate::is_atomic_integer<T>, "atomicCAS: int, unsigned or unsigned long long");
  return hearth::cuda::emulate::change(p, [=](T old) { return old == expected ? value : old; });
}
