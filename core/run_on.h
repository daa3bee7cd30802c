// SPDX-License-Identifier: Apache-2.0
// From a device to its stream, whose C++ type picks the kernel overload.
#pragma once

#include "hearth/core/cpu/stream.h"
#include "hearth/core/error.h"

namespace hearth {

/// f(stream of `device`).
template <class F>
decltype(auto) run_on(Device device, F&& f) {
  HEARTH_CHECK(DeviceError, device.is_cpu(), "device ", name_of(device),
               ": this build of Hearth has the CPU backend only");
  return f(cpu::stream_of(device));
}

}  // namespace hearth
