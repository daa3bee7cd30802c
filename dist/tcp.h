// SPDX-License-Identifier: Apache-2.0
// Ranks connected by TCP.
#pragma once

#include <memory>
#include <string>

#include "dist/control.h"
#include "dist/transport.h"

namespace hearth::dist {

struct TcpOptions {
  std::string address{};     ///< of this machine, to listen on; "": the one by which the server is reached
  double join_seconds = 60;  ///< to wait for the other ranks
  /// An exchange in which nothing moves for so long fails: longer than rank 0 evaluates or writes for all.
  double timeout_seconds = 1800;
};

/// Connects this rank with all others, which meet by `control`; it must outlive the transport and may be told of
/// failures by it. Both ends of a connection prove by the side channel that they are ranks; who does not is hung up on.
/// PeerError where a rank cannot be reached.
std::unique_ptr<Transport> tcp_transport(Control& control, int size, const TcpOptions& options = {});

}  // namespace hearth::dist
