// SPDX-License-Identifier: Apache-2.0
// What the device of a run can do at most, for `mfu` in its metrics.
#pragma once

#include "core/device.h"
#include "core/export.h"
#include "train/config/run_config.h"
#include "train/profile/device_use.h"

namespace hearth::train {

/// Of a GPU, the data sheet's rates of products in this type and of memory. Of a CPU, what `hearth doctor --speed` has
/// measured with as many threads. Rates that are not known are 0.
HEARTH_API DevicePeak run_peak(Device device, ComputeType type);

}  // namespace hearth::train
