// SPDX-License-Identifier: Apache-2.0
// Whole training steps, one at a time, as `hearth bench step` and `hearth tune batch` time them.
#pragma once

#include <memory>

#include "hearth/train/captured_step.h"
#include "hearth/train/session.h"

namespace hearth::train {

/// Steps of a run on its first batch, eager or replayed as the config asks.
class StepBench {
 public:
  explicit StepBench(LoadedConfig config);
  /// Milliseconds of one step, until the device is done with it.
  double step_ms();
  const Session& session() const { return session_; }
  const data::Batch& batch() const { return batch_; }
  /// Whether steps are replayed by now.
  bool replays() const { return captured_ && captured_->nodes() > 0; }

 private:
  Session session_;
  std::unique_ptr<CapturedStep> captured_;
  data::Batch batch_;
};

}  // namespace hearth::train
