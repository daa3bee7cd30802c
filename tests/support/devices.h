// SPDX-License-Identifier: Apache-2.0
// For tests of one thing on every device. Suites that use it are called ...OnDevices, by which the label cuda finds
// them.
#pragma once

#include <vector>

#include "core/device.h"

namespace hearth::test {

/// The CPU, and the first CUDA device if there is one.
inline std::vector<Device> devices() {
  std::vector<Device> all{Device{}};
  if (device_count(DeviceType::cuda) > 0) all.push_back({DeviceType::cuda, 0});
  return all;
}

}  // namespace hearth::test
