// SPDX-License-Identifier: Apache-2.0
// What sums over ranks cost by each route: alpha + beta * bytes, as measured.
#pragma once

#include <map>
#include <optional>
#include <vector>

#include "core/collective.h"
#include "dist/cost/routed.h"
#include "dist/strategy/strategy.h"

namespace hearth::dist {

/// Seconds of a collective: latency + seconds_per_byte * bytes.
struct LinearCost {
  double latency = 0;
  double seconds_per_byte = 0;

  double seconds(double bytes) const { return latency + seconds_per_byte * bytes; }
  bool operator==(const LinearCost&) const = default;
};
/// Through two measured times, with no part below 0. UsageError unless the latter are of more bytes.
HEARTH_API LinearCost fit(double fewer_bytes, double their_seconds, double more_bytes, double seconds);

struct SumCosts {
  std::map<Route, LinearCost> routes;  ///< of a sum, by the bytes of the tensor as it travels
  LinearCost to_each{};                ///< of an exchange, by the bytes that each rank sends to each other one

  /// UsageError for a sum by a route that was not measured.
  double seconds(const Transfer& transfer, Route route) const;
};

/// Measures sums of f32 by these routes, in the type `wire` where it is given, and, if `exchanges`, an exchange of all
/// ranks with all. Every rank calls it with the same, and all get the same. The group's route is as before. Takes about
/// 14 s of three routes on links of 0.1 Gbit/s, 2 s on faster ones. UsageError unless the group is Routed.
HEARTH_API SumCosts measure_sums(Collective& group, const std::vector<Route>& routes, std::optional<DType> wire = {},
                                 bool exchanges = false);

}  // namespace hearth::dist
