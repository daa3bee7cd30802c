// SPDX-License-Identifier: Apache-2.0
// Which of several ways to do the same is the fastest, by repeated measurement. Knows neither devices nor libraries.
#pragma once

#include <cstddef>
#include <functional>

namespace hearth {

struct Fastest {
  std::size_t index = 0;
  double microseconds = 0;  ///< the median of its runs; infinite if no way ran
};

/// Microseconds that one run of way `way` takes; infinity if it does not run. `round` counts the runs of all ways, so
/// that each can be given other memory.
using TimeOneRun = std::function<double(std::size_t way, std::size_t round)>;

/// The way of the smallest median. Each way runs once without being counted, then five times in turn with the others,
/// so that a change of the clock meets all alike; the best three run ten times more. Of equals the first wins.
Fastest fastest_of(std::size_t ways, const TimeOneRun& time);

/// False where HEARTH_PLAN_TIMING is "off". ConfigError for anything but "on" and "off".
bool plan_timing_is_on();

}  // namespace hearth
