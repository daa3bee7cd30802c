// SPDX-License-Identifier: Apache-2.0
// What the parts of a data parallel pass took, without what they waited for.
#pragma once

#include <chrono>
#include <cstddef>
#include <utility>
#include <vector>

#include "core/export.h"
#include "dist/cost/schedule.h"

namespace hearth::dist {

/// Seconds of the last forward and backward pass, that DataParallel::time_next_pass() asked for, from
/// overlap_next(true) on.
struct PassTimes {
  double compute = 0;              ///< of the forward and backward pass
  std::vector<double> arrivals{};  ///< of each parameter: what of it was computed before its gradient was there
  /// Of each bucket what the strategy computed: before each collective, and at its end.
  std::vector<std::vector<double>> stages{};
  std::vector<double> ends{};
};

/// Takes them. What happens within hold() is no part of the pass.
class HEARTH_API PassClock {
 public:
  void begin(std::size_t parameters, std::size_t buckets) {
    begin_ = Clock::now();
    held_ = {};
    times_.compute = 0;
    times_.arrivals.assign(parameters, -1);
    times_.stages.assign(buckets, {});
    times_.ends.assign(buckets, 0);
  }
  bool is_on() const { return begin_ != Clock::time_point{}; }
  void arrived(std::size_t parameter) {
    if (is_on()) times_.arrivals[parameter] = passed();
  }
  template <class F>
  void hold(F f) {
    if (!is_on()) return f();
    const auto from = Clock::now();
    f();
    held_ += Clock::now() - from;
  }
  /// Returns what f does, which is a stage of the bucket.
  template <class F>
  auto stage(std::size_t bucket, F f) {
    if (!is_on()) return f();
    const auto from = Clock::now();
    auto result = f();
    times_.stages[bucket].push_back(seconds(Clock::now() - from));
    return result;
  }
  template <class F>
  void end(std::size_t bucket, F f) {
    if (!is_on()) return f();
    const auto from = Clock::now();
    f();
    times_.ends[bucket] = seconds(Clock::now() - from);
  }
  /// The backward pass is over.
  void computed() {
    if (!is_on()) return;
    times_.compute = passed();
    // What had no gradient is summed last.
    for (double& arrival : times_.arrivals)
      if (arrival < 0) arrival = times_.compute;
  }
  void stop() { begin_ = {}; }
  const PassTimes& times() const { return times_; }

 private:
  using Clock = std::chrono::steady_clock;
  static double seconds(Clock::duration time) { return std::chrono::duration<double>(time).count(); }
  double passed() const { return seconds(Clock::now() - begin_ - held_); }

  Clock::time_point begin_{};
  Clock::duration held_{};
  PassTimes times_;
};

}  // namespace hearth::dist
