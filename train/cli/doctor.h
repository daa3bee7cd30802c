// SPDX-License-Identifier: Apache-2.0
// Parts of `hearth doctor`.
#pragma once

#include <string>
#include <vector>

#include "dist/network.h"
#include "train/cli/arguments.h"

namespace hearth::train {

/// A line of the report, on stdout.
void print_line(const std::string& name, const std::string& text);
/// What `hearth doctor --network` prints, on stdout. `nccl_logs` are files of which each may have the log of some
/// ranks.
void print_network(const dist::Network& network, const std::vector<std::string>& nccl_logs, bool as_json);
/// Measures this machine, prints its description and keeps it for `hearth plan`; gives the exit code.
int doctor_speed(const Arguments& arguments);

}  // namespace hearth::train
