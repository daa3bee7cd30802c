// SPDX-License-Identifier: Apache-2.0
// By which route, and in buckets of which size, ranks sum their gradients soonest, by what was measured.
#pragma once

#include <vector>

#include "core/collective.h"
#include "dist/cost/pass_clock.h"
#include "dist/cost/schedule.h"
#include "dist/cost/sums.h"
#include "dist/data_parallel.h"

namespace hearth::dist {

/// The latest of the ranks' times, and of stages and ends those of the rank that computes longest in all: where ranks
/// share cores, another rank is late at each bucket. Every rank calls it, with as many numbers.
HEARTH_API PassTimes agreed_times(Collective& group, const PassTimes& mine);

/// What a run may sum by. The first of each is what it takes unless others are faster.
struct SumChoices {
  std::vector<Route> routes;
  std::vector<double> bucket_mb;
};
/// The routes of `auto`: those of which a run has the same bits whichever is taken, so that measured times change none;
/// with `repeatable` false all that the ranks can take. `usual` comes first.
HEARTH_API std::vector<Route> automatic_routes(Route usual, const std::vector<int>& hosts, bool repeatable);
/// Sizes that `auto` compares, the default first.
HEARTH_API std::vector<double> automatic_bucket_mb();

struct SumForecast {
  Route route{};
  double bucket_mb = 0;
  Forecast step;
};
/// A forecast of each combination. `times` are agreed_times() of a pass with the buckets that `parallel` has. Other
/// sizes than these are of sums without compression (UsageError).
HEARTH_API std::vector<SumForecast> forecasts(const DataParallel& parallel, const PassTimes& times,
                                              const SumCosts& costs, const SumChoices& choices);
/// The fastest, or the first of those that take at most 1 % longer. UsageError for none.
HEARTH_API const SumForecast& best_of(const std::vector<SumForecast>& forecasts);

}  // namespace hearth::dist
