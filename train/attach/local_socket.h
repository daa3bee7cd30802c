// SPDX-License-Identifier: Apache-2.0
// Stream sockets that are files.
#pragma once

#include <string>

namespace hearth::train {

/// Listens at a socket file in a folder, whose old file of this name goes; mode 0600. The descriptor does not block,
/// and programs that are started do not inherit it. -1, with the reason in `why`, where that is not possible.
int listen_at(const std::string& folder, const char* name, std::string& why);
/// Connects to it; -1 with the reason.
int connect_to(const std::string& folder, const char* name, std::string& why);
/// Whether the process at the other end runs as this user, or as root.
bool is_trusted_peer(int descriptor);

}  // namespace hearth::train
