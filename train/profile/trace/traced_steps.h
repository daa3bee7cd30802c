// SPDX-License-Identifier: Apache-2.0
// The first steps of a training on a CUDA device, watched kernel by kernel (log.profile).
#pragma once

#include <functional>
#include <memory>

#include "train/checkpoint/run_folder.h"
#include "train/profile/device_use.h"
#include "train/report/progress.h"
#include "train/session.h"

namespace hearth::train {

class StepTracer;

/// Leaves device_profile.json in the run's folder, which its report shows, as `hearth bench step --profile` does.
class TracedSteps {
 public:
  /// Says to progress why nothing will be watched where log.profile asks for it. `peak`: what a kernel's time is
  /// compared with.
  TracedSteps(Session& session, RunFolder& folder, Progress& progress, const DevicePeak& peak);
  ~TracedSteps();
  /// Runs a step; a watched one waits for the device.
  void run(const std::function<void()>& step);

 private:
  void write();

  std::unique_ptr<StepTracer> tracer_;  ///< null where nothing is watched, any more
  Session& session_;
  RunFolder& folder_;
  DevicePeak peak_;
};

}  // namespace hearth::train
