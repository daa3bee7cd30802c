// SPDX-License-Identifier: Apache-2.0
// Where a CUDA device is on the PCI bus, by which NVML and the kernel name it. In every build.
#pragma once

#include <string>

#include "core/export.h"

namespace hearth {
struct Device;
}

namespace hearth::cuda {

/// As the kernel writes it: "0000:3d:00.0". Makes no context on the device. DeviceError, with what was found and the
/// remedy, if there is no such device.
HEARTH_API std::string bus_address(Device device);

}  // namespace hearth::cuda
