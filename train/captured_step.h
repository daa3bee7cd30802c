// SPDX-License-Identifier: Apache-2.0
// Training steps of a CUDA device as one graph: forward, backward, clipping, optimizer, moving average and meters are
// recorded once and then replayed by a single launch. What changes from step to step (batch, learning rate, step
// number) reaches the device beforehand, in memory that the recorded work reads. Gives the same bits as eager steps.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "hearth/train/step.h"

namespace hearth::train {

class CapturedStep {
 public:
  /// For a session on a CUDA device (UsageError otherwise), which must outlive this.
  explicit CapturedStep(Session& session);
  ~CapturedStep();
  CapturedStep(const CapturedStep&) = delete;
  CapturedStep& operator=(const CapturedStep&) = delete;

  /// As training_step(). The first steps run eagerly in the arena of the graph, then one is recorded; steps whose
  /// shapes or numbers of labels that count are others than those of the first, and all if recording failed, run
  /// eagerly.
  StepResult run(std::span<const data::Batch> batches);

  /// Kernels, copies and fills that one replay consists of; 0 as long as nothing is recorded.
  std::int64_t nodes() const;
  /// Why steps are not replayed; empty if they are, or may be yet.
  const std::string& declined() const { return declined_; }

 private:
  struct Recorded;
  Session& session_;
  std::unique_ptr<Recorded> recorded_;
  [[maybe_unused]] int eager_steps_ = 0;
  [[maybe_unused]] int misfits_ = 0;  ///< before anything was recorded
  std::string declined_;
};

}  // namespace hearth::train
