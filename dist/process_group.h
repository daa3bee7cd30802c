// SPDX-License-Identifier: Apache-2.0
// Groups of ranks: processes, or threads of one.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "core/collective.h"
#include "dist/environment.h"

namespace hearth::dist {

struct ProcessGroupOptions {
  double join_seconds = 120;    ///< to wait for the other ranks at the start
  double give_up_seconds = 60;  ///< without a sign of life from a rank: the group fails
  /// Called on another thread with what the user should hear of: a rank that is silent, one that is there again.
  std::function<void(const std::string&)> warn{};
};

/// Joins the group of `placement`, connected by Gloo; rank 0 runs the server that the ranks meet at, unless what
/// started them does. PeerError where the ranks do not come together; UsageError in a build without Gloo.
HEARTH_API std::unique_ptr<Collective> join_processes(const Placement& placement,
                                                      const ProcessGroupOptions& options = {});

/// Groups of `size` ranks that are threads of this process: for tests, and for programs that compute in threads. Each
/// object is used by one thread.
HEARTH_API std::vector<std::unique_ptr<Collective>> loopback_groups(int size);

}  // namespace hearth::dist
