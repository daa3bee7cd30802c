// SPDX-License-Identifier: Apache-2.0
// What a device did, beside what the host asked for.
#pragma once

#include <vector>

#include "train/profile/step_profile.h"

namespace hearth::train {

struct DeviceActivity {
  std::vector<cuda::DeviceSpan> spans;  ///< in order of begin
  std::vector<AskedWork> asked;         ///< in the order in which streams got it
};

/// Watches a device during its life. Replays show their kernels where they were recorded meanwhile. One at a time:
/// UsageError for a second, DeviceError where CUPTI is not there (cuda::why_no_device_trace).
class DeviceWatch {
 public:
  /// What happened since the construction or the last call; the caller has waited for the device, both times.
  DeviceActivity take() { return {trace_.take(), log_.take()}; }

 private:
  WorkLog log_;
  cuda::DeviceTrace trace_;
};

}  // namespace hearth::train
