// SPDX-License-Identifier: Apache-2.0
// Whether ops may give other bits each time.
#pragma once

#include "core/export.h"

namespace hearth {

/// Whether only such algorithms of a device's libraries are taken as give the same bits each time. On at the start.
/// Setting it changes it for all threads without a SwitchScope. Hearth's native kernels give the same bits in any case.
HEARTH_API bool repeatable();
HEARTH_API void set_repeatable(bool on);

}  // namespace hearth
