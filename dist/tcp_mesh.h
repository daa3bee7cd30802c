// SPDX-License-Identifier: Apache-2.0
// Connecting each rank with each other.
#pragma once

#include <string>
#include <vector>

#include "dist/control.h"
#include "dist/socket.h"

namespace hearth::dist {

/// A socket to each other rank, by rank; this rank's place is empty. A rank listens on `address` until all of higher
/// numbers have called it, and calls those of lower ones. Strangers who connect meanwhile are hung up on. PeerError
/// where that takes longer than so many seconds, or the group fails.
std::vector<Socket> connect_ranks(Control& control, int size, const std::string& address, double seconds);

}  // namespace hearth::dist
