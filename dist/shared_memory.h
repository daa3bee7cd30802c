// SPDX-License-Identifier: Apache-2.0
// Ranks that are processes of one machine, connected by memory that all of them see.
#pragma once

#include <memory>
#include <string>

#include "dist/control.h"
#include "dist/transport.h"

namespace hearth::dist {

struct SharedMemoryOptions {
  double join_seconds = 60;  ///< to wait for the other ranks
  /// An exchange in which nothing moves for so long fails: longer than rank 0 evaluates or writes for all.
  double timeout_seconds = 1800;
};

/// Connects this rank with all others by a segment that rank 0 makes and that has no name in the file system: it is
/// gone with the last process. Null where one of the ranks cannot see it, on all of them: another machine, container
/// or user; `why` is the reason then. Every rank calls it. `control` must outlive the transport, may be told of
/// failures by it, and throws PeerError where a rank fails in between.
std::unique_ptr<Transport> shared_memory_transport(Control& control, int size, std::string& why,
                                                   const SharedMemoryOptions& options = {});

}  // namespace hearth::dist
