// SPDX-License-Identifier: Apache-2.0
// Where the time and the memory of a training went, as run.json and the report tell it.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <string>

#include "core/io/json_text.h"
#include "train/session.h"

namespace hearth::train {

/// Times of this process's part of a run. Some of its first steps are watched operation by operation.
class HEARTH_API RunProfile {
 public:
  using Clock = std::chrono::steady_clock;

  /// Adds steps that a line of training metrics has.
  void add(const PhaseSeconds& steps) { steps_seconds_ += steps; }
  /// Adds the time from `start` until now.
  void add_evaluation(Clock::time_point start);
  void add_checkpoint(Clock::time_point start);

  /// Watches a step, between construction and destruction, if it is one of those to be watched: few after the first
  /// ones, which choose implementations. Does nothing while the program itself collects a profile.
  class StepScope {
   public:
    StepScope(RunProfile& profile, const Session& session);
    ~StepScope();
    StepScope(const StepScope&) = delete;
    StepScope& operator=(const StepScope&) = delete;

   private:
    RunProfile* profile_ = nullptr;
    Clock::time_point start_;
  };

  /// "seconds" by phase of the steps, and of evaluations and checkpoints; "step_milliseconds" by operation and
  /// "kernel_milliseconds" by implementation, the slowest ones, of the quickest step watched on a CPU; "bytes": what
  /// the run holds from step to step, the peak in use and what was held from the system.
  Json to_json(const Session& session) const;

 private:
  PhaseSeconds steps_seconds_;
  double evaluation_seconds_ = 0, checkpoint_seconds_ = 0;
  std::int64_t steps_ = 0;                             // begun
  double quickest_seconds_ = 0;                        // of the steps watched; 0 before there is one
  std::map<std::string, double> milliseconds_;         // of it, by operation
  std::map<std::string, double> kernel_milliseconds_;  // likewise, by implementation
};

}  // namespace hearth::train
