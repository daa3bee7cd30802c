// SPDX-License-Identifier: Apache-2.0
// Training steps of a CUDA device as one graph: forward, backward, clipping, optimizer, moving average and meters are
// recorded once for each shape of batches and then replayed by a single launch. What changes from step to step (batch,
// learning rate, step number) reaches the device beforehand, in memory that the recorded work reads. Gives the same
// bits as eager steps.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "core/cuda/stream.h"
#include "train/step/step.h"

namespace hearth::train {

/// Why a trainer runs the steps of a CUDA device one by one; empty if it records and replays them as far as that
/// succeeds.
HEARTH_API std::string why_not_replayed(const Session& session);

class CapturedStep {
 public:
  CapturedStep() = default;
  virtual ~CapturedStep() = default;
  CapturedStep(const CapturedStep&) = delete;
  CapturedStep& operator=(const CapturedStep&) = delete;

  /// As training_step(). Batches of a new shape run eagerly in the arena of the graphs, twice the first of all and once
  /// all others, and are recorded when they come again. Steps run eagerly too if their shape could not be recorded
  /// twice, and if it comes after the first `max_graphs`. All do once a shape could not be recorded before any other.
  /// Ragged tensors get spare entries (data::with_spare_entries()).
  virtual StepResult run(std::span<const data::Batch> batches) = 0;
  /// Forgets what is recorded, which the next step of each shape records again, with the same bits: tools that watch a
  /// device see the kernels of replays where they have seen the recording. Waits for the device. If there are several
  /// ranks, all have to do so before the same step.
  virtual void record_anew() = 0;

  static constexpr std::size_t max_graphs = 128;

  /// Kernels, copies and fills that the last replay consisted of; 0 as long as nothing is recorded.
  std::int64_t nodes() const { return nodes_; }
  /// Shapes of batches that are recorded.
  virtual std::int64_t graphs() const = 0;
  /// Why steps are not replayed; empty if they are, or may be yet.
  const std::string& unsupported_reason() const { return unsupported_reason_; }

 protected:
  std::int64_t nodes_ = 0;
  std::string unsupported_reason_;
};

/// For a session on a CUDA device (UsageError otherwise), which must outlive it.
std::unique_ptr<CapturedStep> make_captured_step(Session& session);
std::unique_ptr<CapturedStep> make_captured_step(cuda::Stream& stream, Session& session);

}  // namespace hearth::train
