// SPDX-License-Identifier: Apache-2.0
// Groups whose ranks sum by routes of dist.
#pragma once

#include <vector>

#include "core/collective.h"
#include "core/export.h"
#include "dist/route.h"

namespace hearth::dist {

/// What a group knows of how it sums beyond its collectives. Every rank calls the same, in the order of the
/// collectives.
class HEARTH_API Routed {
 public:
  virtual ~Routed() = default;
  /// The host of each rank, numbered from 0.
  virtual const std::vector<int>& hosts() const = 0;
  /// How large sums go now; not automatic.
  virtual Route current_route() const = 0;
  /// Sums that start from now on go by another route. ConfigError, as for dist.route, where the ranks cannot.
  virtual void use_route(Route route) = 0;
};

/// Null where a library decides how sums go, as NCCL does.
inline Routed* routed(Collective& group) { return dynamic_cast<Routed*>(&group); }

}  // namespace hearth::dist
