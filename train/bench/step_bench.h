// SPDX-License-Identifier: Apache-2.0
// Whole training steps, as `hearth bench step` and `hearth tune batch` time them.
#pragma once

#include <memory>
#include <vector>

#include "train/profile/device_use.h"
#include "train/session.h"
#include "train/step/captured_step.h"

namespace hearth::train {

/// Whole steps of a run, eager or replayed as the config asks: its first batch as often as a step has batches
/// (train.accumulate), and the update.
class StepBench {
 public:
  /// With a group, which must outlive this, the steps of one of its ranks.
  explicit StepBench(LoadedConfig config, Collective* group = nullptr);
  /// Milliseconds of a step. Of several, which are queued back to back as a training queues them, until the device is
  /// done with the last.
  double step_ms(std::int64_t steps = 1);
  /// Mean loss of all steps so far. DivergedError where it is not finite.
  double loss();
  /// Forgets what was recorded for replays: the next steps do so again.
  void record_anew();
  /// Of the latest step that was not a replay.
  const StepWork& work() const { return meter_.last(); }
  const Session& session() const { return session_; }
  const data::Batch& batch() const { return batches_[0]; }
  /// Rows of a step.
  std::int64_t rows() const { return batch().size() * static_cast<std::int64_t>(batches_.size()); }
  /// What a step counts in throughput: images, sequences, or ids that are predicted.
  std::int64_t items() const;
  /// Whether steps are replayed by now.
  bool replays() const { return captured_ && captured_->nodes() > 0; }

 private:
  void run_step();

  Session session_;
  std::unique_ptr<CapturedStep> captured_;
  std::vector<data::Batch> batches_;
  StepWorkMeter meter_;
};

}  // namespace hearth::train
