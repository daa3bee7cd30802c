// SPDX-License-Identifier: Apache-2.0
// Whether f32 may be multiplied as TF32.
#pragma once

#include "core/export.h"

namespace hearth {

/// Which operations of f32 may round their operands to TF32 (10 bits of mantissa, the exponents of f32; sums stay f32)
/// where a device's libraries can. Hearth's native kernels, among them those of f32 attention, multiply f32 as f32 in
/// any case, so a CPU does.
struct Tf32 {
  bool matmul = false;  ///< matrix products and linear layers
  bool conv = false;    ///< convolutions

  constexpr Tf32() = default;
  constexpr Tf32(bool both) : matmul(both), conv(both) {}  // NOLINT(google-explicit-constructor)
  constexpr Tf32(bool of_matmul, bool of_conv) : matmul(of_matmul), conv(of_conv) {}
  bool operator==(const Tf32&) const = default;
};

/// That of the calling thread: none at the start.
HEARTH_API Tf32 allowed_tf32();
/// Whether it is all.
HEARTH_API bool allows_tf32();
/// Changes it for all threads without a SwitchScope.
HEARTH_API void set_allows_tf32(Tf32 of);

}  // namespace hearth
