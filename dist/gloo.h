// SPDX-License-Identifier: Apache-2.0
// Ranks connected by Gloo, over TCP.
#pragma once

#include <memory>
#include <string>

#include "dist/control.h"
#include "dist/transport.h"

namespace hearth::dist {

struct GlooOptions {
  std::string address{};     ///< of this machine, to listen on; "": the one by which the server is reached
  double join_seconds = 60;  ///< to wait for the other ranks' addresses
  /// An exchange in which nothing arrives for so long fails: longer than rank 0 evaluates or writes for all.
  double timeout_seconds = 1800;
  std::string reason{};  ///< why the ranks have no faster connection; for the error of a build without Gloo
};

/// Why this build has none, with the remedy; empty where it has.
std::string why_no_gloo();

/// Connects this rank with all others, which meet by `control`; it must outlive the transport and may be told of
/// failures by it. UsageError in a build without Gloo.
std::unique_ptr<Transport> gloo_transport(Control& control, int size, const GlooOptions& options);

}  // namespace hearth::dist
