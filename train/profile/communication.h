// SPDX-License-Identifier: Apache-2.0
// What the communication of a data parallel run costs, as its metrics tell it.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "core/collective.h"
#include "core/export.h"
#include "core/io/json_text.h"
#include "train/profile/phase_meter.h"

namespace hearth::train {

/// Seconds that a rank took for a step.
struct StepTimes {
  double whole = 0;  ///< 0: not measured
  double busy = 0;   ///< without the time in which it waited for other ranks
};

/// Of the steps of a log interval, as one rank measures them.
class HEARTH_API CommunicationMeter {
 public:
  /// Nothing is measured in a run of one process.
  explicit CommunicationMeter(const Collective* group)
      : group_(group != nullptr && group->size() > 1 ? group : nullptr),
        on_device_(group_ != nullptr && group_->device().is_cuda()) {}

  void begin_step();
  /// `seconds`: the whole step.
  void end_step(double seconds);
  /// Those of the last step.
  const StepTimes& last() const { return last_; }
  /// Of all ranks, for a step.
  void add_times(std::span<const StepTimes> times);
  /// The part of the steps' time that waited for other ranks; below 0 where that is not known.
  double wait_fraction() const;
  /// What the ranks compute together over as many times what one would without communication: the busy part of their
  /// time. Below 0 where that is not known.
  double scaling_efficiency() const;
  /// The keys communication_... and scaling_efficiency of a line of training metrics. Where devices sum, the time that
  /// they wait is a phase of the steps, and how long a sum takes is not known.
  void write(Json& record, const PhaseSeconds& phases) const;
  /// Begins an interval.
  void clear();

 private:
  const Collective* group_;
  bool on_device_;
  std::int64_t bytes_of_step_ = 0;  ///< of the last step that was no replay
  Traffic before_, sum_;
  double seconds_ = 0;
  std::int64_t steps_ = 0;
  StepTimes last_, of_ranks_;
};

/// Finds ranks that all others wait for: over a window of steps, the median of a rank's busy time is more than `factor`
/// times that of the median rank, of two ranks the faster one.
class HEARTH_API StragglerWatch {
 public:
  static constexpr double factor = 1.3;
  static constexpr std::size_t window = 20;
  /// At least; where steps are short a window has more of them, as what else the machine does disturbs these.
  static constexpr double window_seconds = 1;
  /// The first ones choose implementations and ask for memory.
  static constexpr std::size_t steps_before = 5;

  struct Straggler {
    int rank = 0;
    double seconds = 0;  ///< a step
    double median = 0;   ///< of the median rank
  };
  /// Takes a step in, as all ranks measured it; who was found now and never before.
  std::vector<Straggler> add(std::span<const StepTimes> times);

 private:
  std::size_t steps_ = 0;
  double seconds_ = 0;                     ///< of the window
  std::vector<std::vector<double>> busy_;  ///< of the window, by rank
  std::vector<bool> named_;                ///< by rank
};

}  // namespace hearth::train
