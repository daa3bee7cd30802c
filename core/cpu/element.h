// SPDX-License-Identifier: Apache-2.0
// Reading and writing one element in the type that kernels compute in. The 16-bit types go through their bits:
// a loop that copies their structs does not vectorise.
#pragma once

#include "core/cpu/vector_math.h"
#include "core/half.h"

namespace hearth::cpu {

HEARTH_ALWAYS_INLINE float load(const float* p) { return *p; }
HEARTH_ALWAYS_INLINE double load(const double* p) { return *p; }
HEARTH_ALWAYS_INLINE float load(const bf16* p) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(p->bits) << 16);
}
HEARTH_ALWAYS_INLINE float load(const f16* p) { return f16::to_float(p->bits); }

HEARTH_ALWAYS_INLINE void store(float* p, float value) { *p = value; }
HEARTH_ALWAYS_INLINE void store(double* p, double value) { *p = value; }
/// The bits of bf16::from_float. A NaN becomes quiet before the low halves are dropped, so that a loop drops and packs
/// those of two vectors at once, and tests one comparison for NaN.
HEARTH_ALWAYS_INLINE void store(bf16* p, float value) {
  const std::uint32_t u = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t rounded = u + 0x7fffu + ((u >> 16) & 1u);
  p->bits = static_cast<std::uint16_t>((value == value ? rounded : u | 0x400000u) >> 16);
}
HEARTH_ALWAYS_INLINE void store(f16* p, float value) { p->bits = f16::from_float(value); }

}  // namespace hearth::cpu
