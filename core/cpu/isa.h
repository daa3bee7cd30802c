// SPDX-License-Identifier: Apache-2.0
// Which instruction-set level of the native kernels runs. One binary holds three; the best that the
// processor has is chosen once. HEARTH_ISA=baseline|v3|v4 overrides the choice downwards.
#pragma once

#include <type_traits>

#include "core/half.h"

namespace hearth::cpu {

enum class Isa {
  baseline,  ///< x86-64 (SSE2), or whatever the compiler targets on other processors
  v3,        ///< all of x86-64-v3: AVX2, FMA, F16C, BMI1 and 2, LZCNT, MOVBE
  v4,        ///< all of x86-64-v4: the same and AVX-512 F, BW, CD, DQ, VL
};

/// The ISA level in use. ConfigError when HEARTH_ISA names one that is unknown or that this processor lacks.
Isa isa();
const char* name_of(Isa isa);

/// Whether kernels over elements of T, which HEARTH_ISA_CALL_FOR calls, are compiled for v4 too: f32 and bf16 are what
/// is trained in.
template <class T>
inline constexpr bool has_v4 = std::is_same_v<T, float> || std::is_same_v<T, bf16>;

}  // namespace hearth::cpu
