// SPDX-License-Identifier: Apache-2.0
// The memory that a run needs on its device, estimated for any batch size. A few real steps and evaluations at small
// batches are watched block by block; what each block would be at another size is replayed through the allocator's own
// arithmetic. So the answer follows from what the ops really do on this device, and nothing has to fit.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "train/memory/memory_budget.h"
#include "train/memory/memory_trace.h"
#include "train/session.h"

namespace hearth::train {

/// Bytes, at one batch size.
struct MemoryNeed {
  std::int64_t batch = 0;
  std::int64_t parameters = 0;
  std::int64_t gradients = 0;
  std::int64_t optimizer = 0;  ///< moments
  std::int64_t averages = 0;   ///< of weights and buffers
  std::int64_t buffers = 0;    ///< running statistics
  std::int64_t other = 0;      ///< what else does not depend on the batch, as a dataset held in memory
  std::int64_t inputs = 0;     ///< batches that are there at once: those of a step, and on the CPU those prepared ahead
  std::int64_t kept = 0;       ///< of forward for backward
  std::int64_t working = 0;    ///< what else a step holds at its peak
  Origin peak_origin;          ///< who takes the block that makes a step's peak
  std::int64_t evaluation = 0;  ///< most that an evaluation holds, its batches included
  std::int64_t peak = 0;        ///< most bytes in use at once during the run: MemoryStatistics::peak
  std::int64_t reserved = 0;    ///< bytes held from the system then: the peak and what lies between blocks
};

struct MeasuredBatches {
  std::int64_t small = 2;
  std::int64_t large = 4;
};
/// Sizes whose steps are quick, yet large enough for the ops to behave as they do at any larger one.
MeasuredBatches batches_to_measure(const Session& session);

class StepMemory {
 public:
  /// Runs steps and evaluations of blank images at the two sizes; the session is of no use for training afterwards.
  /// `target`: the kind of device that the prediction is for. If the session computes on another one, the ops' blocks
  /// are those of the session's device.
  StepMemory(Session& session, MeasuredBatches measured, DeviceType target);

  MemoryNeed at(std::int64_t batch) const { return needed(batch, {}); }
  /// The same where no more is granted: a CUDA device's pools then do with smaller regions. That of at(batch), which
  /// the budget does not hold, where even so there is not enough.
  MemoryNeed at(std::int64_t batch, const MemoryBudget& budget) const;
  /// The largest batch size up to `most` whose need the budget holds; nothing if not even 1 fits.
  std::optional<std::int64_t> largest_batch(const MemoryBudget& budget, std::int64_t most) const;
  /// Why the budget does not hold what a batch needs, with a batch size that would fit; empty if it does.
  std::string shortage(std::int64_t batch, const MemoryBudget& budget) const;
  /// Bytes that forward keeps for backward, by the path of the layer.
  std::map<std::string, std::int64_t> saved_by_layer(std::int64_t batch) const { return step_->saved_by_layer(batch); }
  /// How the numbers came about, in a sentence.
  std::string method() const;
  MeasuredBatches measured() const { return measured_; }

 private:
  void measure_fixed(Session& session);
  /// OutOfMemory where the budget is reached.
  MemoryNeed needed(std::int64_t batch, const MemoryBudget& budget) const;

  MeasuredBatches measured_;
  Device device_;
  DeviceType target_;
  bool graph_ = false;
  bool pinned_ = true;
  std::int64_t accumulate_ = 1;
  std::int64_t prefetch_ = 0;
  std::optional<std::int64_t> evaluation_batch_;
  std::int64_t evaluation_samples_ = 0;
  std::int64_t sample_bytes_ = 0;
  std::vector<std::int64_t> fixed_blocks_;
  MemoryNeed fixed_;
  std::optional<BatchTrace> step_;
  std::optional<BatchTrace> evaluation_;
};

/// Rows of the largest batch of a run: train.batch_size, or what data.tokens_per_batch makes of the longest rows.
std::int64_t largest_rows(const Session& session);

/// OutOfMemory unless the budget holds what the run is estimated to need. Takes steps of a few blank samples for that,
/// and restarts the session.
void require_run_fits(Session& session, const MemoryBudget& budget);

/// For a run that stopped because a block did not fit: a batch size that would, or why none does. Says nothing ("") if
/// that cannot be found out. The session is of no use for training afterwards.
std::string advice_on_batch(Session& session);

}  // namespace hearth::train
