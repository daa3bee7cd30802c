// SPDX-License-Identifier: Apache-2.0
// Steps as the device ran them, beside what the host asked for.
#pragma once

#include <cstdint>
#include <functional>
#include <limits>

#include "train/profile/trace/device_watch.h"

namespace hearth::train {

/// Watches steps from the first on, as replays show their kernels only where they were recorded meanwhile. One at a
/// time; DeviceError where CUPTI is not there (cuda::why_no_device_trace).
class StepTracer {
 public:
  /// Runs one, which waits for the device at its end.
  void run(const std::function<void()>& step);
  bool done() const { return steps_ == steps_watched; }
  /// Of the last three, which are replays where steps are replayed. Without spans before there is one.
  DeviceActivity& quickest() { return quickest_; }

 private:
  // Two eager steps, and one that is recorded; then those that count.
  static constexpr int steps_before = 3, steps_watched = 6;
  DeviceWatch watch_;
  int steps_ = 0;
  std::uint64_t least_ = std::numeric_limits<std::uint64_t>::max();
  DeviceActivity quickest_;
};

}  // namespace hearth::train
