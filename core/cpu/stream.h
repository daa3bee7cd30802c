// SPDX-License-Identifier: Apache-2.0
// The CPU backend's stream. Its C++ type selects CPU kernels by overloading; work runs at once, in order.
#pragma once

#include "core/device.h"

namespace hearth::cpu {

class Stream {};

/// The stream of the CPU. `device` must be a CPU device.
HEARTH_API Stream& stream_of(Device device);

}  // namespace hearth::cpu
