// SPDX-License-Identifier: Apache-2.0
// Which threads that make batches stay at one sample, as seen by a thread that waits for them. It counts the time
// between its own looks and no more, so that a process which was halted for an hour accuses nobody.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "data/loading/stages.h"

namespace hearth::data {

class StuckWatch {
 public:
  /// `warn` and `limit`: seconds, or 0 for none.
  StuckWatch(std::size_t workers, double warn, double limit);

  bool is_on() const { return warn_ > 0 || limit_ > 0; }
  /// So often one looks.
  std::chrono::nanoseconds interval() const { return interval_; }
  /// The watching begins: what was before counts for nothing.
  void begin() { last_ = Clock::now(); }
  /// Takes in what a worker is at. Whether it has now been there for longer than `warn`, for the first time.
  bool look(std::size_t worker, const StageClock::Activity& activity);
  /// All workers were looked at.
  void end_look() { begin(); }
  /// Whether the worker has been at what it is at for longer than `limit`.
  bool is_over(std::size_t worker) const { return limit_ > 0 && seen_[worker].seconds >= limit_; }
  double seconds(std::size_t worker) const { return seen_[worker].seconds; }

 private:
  using Clock = std::chrono::steady_clock;
  struct Seen {
    std::int64_t batch = StageClock::none, sample = StageClock::none;
    double seconds = 0;
    bool is_told = false;
  };

  double warn_;
  double limit_;
  std::chrono::nanoseconds interval_;
  Clock::time_point last_ = Clock::now();
  std::vector<Seen> seen_;
};

}  // namespace hearth::data
