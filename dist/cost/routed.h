// SPDX-License-Identifier: Apache-2.0
// Groups whose ranks sum by routes of dist.
#pragma once

#include <vector>

#include "core/collective.h"
#include "dist/cost/links.h"
#include "dist/route.h"

namespace hearth::dist {

/// What a group knows of its links beyond its collectives. Every rank calls the same, in the order of the collectives.
class HEARTH_API Routed {
 public:
  virtual ~Routed() = default;
  /// The host of each rank, numbered from 0.
  virtual const std::vector<int>& hosts() const = 0;
  /// How large sums go now; not automatic.
  virtual Route current_route() const = 0;
  /// Sums that start from now on go by another route. ConfigError, as for dist.route, where the ranks cannot.
  virtual void use_route(Route route) = 0;
  /// The costs of the links, the same on all ranks; see measure_links() of dist/cost/links.h.
  virtual LinkCosts measure_links() = 0;
};

/// Null where a library decides how sums go, as NCCL does.
inline Routed* routed(Collective& group) { return dynamic_cast<Routed*>(&group); }

}  // namespace hearth::dist
