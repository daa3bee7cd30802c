// SPDX-License-Identifier: Apache-2.0
// Ranks of several hosts: shared memory between those of a host, TCP between hosts.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "dist/transport.h"

namespace hearth::dist {

/// The host of each rank, numbered from 0 in the order of ranks, where ranks on one host told the same text.
std::vector<int> hosts_of(const std::vector<std::string>& places);

/// `local` connects the ranks of this rank's host, of `hosts` by rank, and `remote` all ranks.
std::unique_ptr<Transport> mixed_transport(std::unique_ptr<Transport> local, std::unique_ptr<Transport> remote,
                                           std::vector<int> hosts);

}  // namespace hearth::dist
