// SPDX-License-Identifier: Apache-2.0
#include "data/loading/stuck_watch.h"

#include <algorithm>

namespace hearth::data {
namespace {

double interval_for(double warn, double limit) {
  constexpr double longest = 1;
  const auto part = [](double seconds) { return seconds > 0 ? seconds / 4 : longest; };
  return std::min({longest, part(warn), part(limit)});
}

}  // namespace

StuckWatch::StuckWatch(std::size_t workers, double warn, double limit)
    : warn_(warn),
      limit_(limit),
      interval_(std::chrono::duration_cast<std::chrono::nanoseconds>(
          std::chrono::duration<double>(interval_for(warn, limit)))),
      seen_(workers) {}

bool StuckWatch::look(std::size_t worker, const StageClock::Activity& activity) {
  Seen& seen = seen_[worker];
  if (activity.batch == StageClock::none || activity.batch != seen.batch || activity.sample != seen.sample) {
    seen = {activity.batch, activity.sample};
    return false;
  }
  seen.seconds += std::chrono::duration<double>(std::min<Clock::duration>(Clock::now() - last_, 2 * interval_)).count();
  if (seen.is_told || warn_ <= 0 || seen.seconds < warn_) return false;
  seen.is_told = true;
  return true;
}

}  // namespace hearth::data
