// SPDX-License-Identifier: Apache-2.0
// Whether f32 may be multiplied as TF32.
#pragma once

#include "core/export.h"

namespace hearth {

/// Whether matrix products and convolutions of f32 may round their operands to TF32 (10 bits of mantissa, the exponents
/// of f32; sums stay f32) where a device's libraries can. Off at the start. Setting it changes it for all threads
/// without a SwitchScope. Hearth's native kernels multiply f32 as f32 in any case, so a CPU does.
HEARTH_API bool allows_tf32();
HEARTH_API void set_allows_tf32(bool on);

}  // namespace hearth
