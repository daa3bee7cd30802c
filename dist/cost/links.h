// SPDX-License-Identifier: Apache-2.0
// What links between ranks cost: alpha + beta * bytes.
#pragma once

#include <functional>
#include <span>
#include <vector>

#include "core/export.h"
#include "dist/transport.h"

namespace hearth::dist {

/// Seconds of a transfer: latency + seconds_per_byte * bytes.
struct LinkCost {
  double latency = 0;
  double seconds_per_byte = 0;

  double seconds(double bytes) const { return latency + seconds_per_byte * bytes; }
  bool operator==(const LinkCost&) const = default;
};
/// Through two measured times, of at least 0 each.
HEARTH_API LinkCost fit(double fewer_bytes, double their_seconds, double more_bytes, double seconds);

/// What ranks pay that all send at a time.
struct LinkCosts {
  LinkCost on_host{};        ///< of the bytes that each rank sends to the next on its host; zeros where there is none
  LinkCost between_hosts{};  ///< of the bytes that all ranks of a host send to the next host; zeros likewise
  double sum = 0;            ///< seconds of each byte that is added up
  double call = 0;           ///< seconds in which all ranks compare what they call

  bool operator==(const LinkCosts&) const = default;
};

/// Transport::exchange() of the ranks.
using Exchange = std::function<void(std::span<const Outgoing>, std::span<const Incoming>)>;

/// Measures the links of this rank and of all others, which call it too; all get the same. Takes about a second on
/// links of 0.1 Gbit/s, less on faster ones.
HEARTH_API LinkCosts measure_links(int rank, const std::vector<int>& hosts, const Exchange& exchange);

}  // namespace hearth::dist
