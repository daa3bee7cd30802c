// SPDX-License-Identifier: Apache-2.0
// Ranks that are processes of one machine, connected by memory that all of them see.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "dist/control.h"
#include "dist/transport.h"

namespace hearth::dist {

struct SharedMemoryOptions {
  std::vector<int> ranks{};  ///< that are connected, of which this is one; empty: all
  double join_seconds = 60;  ///< to wait for the other ranks
  /// An exchange in which nothing moves for so long fails: longer than rank 0 evaluates or writes for all.
  double timeout_seconds = 1800;
};

/// What processes have in common that can see each other's memory: the same kernel, process and network namespaces;
/// ranks with addresses of their own are meant to be apart. "" where the system does not tell.
std::string place_of_process();

/// Connects this rank with the others of `options.ranks` by a segment that the first of these makes and that has no
/// name in the file system: it is gone with the last process. Null where any of all ranks cannot see that of its own,
/// on all of them: another machine, container or user; `why` is the reason then. Every rank calls it, each host's with
/// their own `ranks`. `control` must outlive the transport, may be told of
/// failures by it, and throws PeerError where a rank fails in between.
std::unique_ptr<Transport> shared_memory_transport(Control& control, int size, std::string& why,
                                                   const SharedMemoryOptions& options = {});

}  // namespace hearth::dist
