// SPDX-License-Identifier: Apache-2.0
// What the commands `devices` and `doctor` tell of the processor and of CUDA devices.
#pragma once

#include <vector>

#include "core/io/json_text.h"

namespace hearth::train {

Json described_cpu();
/// One object a device, also of those that this build cannot use; none where there is no device. DeviceError if the
/// driver does not tell.
std::vector<Json> described_cuda_devices();

}  // namespace hearth::train
