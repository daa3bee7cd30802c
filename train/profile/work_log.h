// SPDX-License-Identifier: Apache-2.0
// What the host asks of devices: each launch with the bytes and the arithmetic of it.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/origin.h"
#include "train/profile/phase_meter.h"

namespace hearth::train {

/// One launch, library call, copy or fill of a step.
struct AskedWork {
  std::string name;
  Origin origin;
  std::int64_t bytes = -1;  ///< that it moves; -1: not declared
  double flops = 0;
  bool own = false;  ///< a kernel of Hearth, which is one on the device too; else a library's call may be several
  std::optional<Phase> phase{};  ///< of the step, where the log has its meter
};

/// Writes down what is asked of devices during its life, in order. One at a time: UsageError for a second.
class WorkLog {
 public:
  explicit WorkLog(const PhaseMeter* phases = nullptr);
  ~WorkLog();
  WorkLog(const WorkLog&) = delete;
  WorkLog& operator=(const WorkLog&) = delete;
  /// What came since the last call. A replay counts as the work of its graph, and as nothing where the graph was
  /// recorded before this log began; what is recorded does not run and counts once it is replayed.
  std::vector<AskedWork> take();

 private:
  class Listener;
  std::unique_ptr<Listener> listener_;
};

}  // namespace hearth::train
