// SPDX-License-Identifier: Apache-2.0
// Processes of one command that are ranks of a data parallel run.
#pragma once

#include <memory>
#include <string>

#include "core/collective.h"
#include "train/config/run_config.h"

namespace hearth::train {

/// The group that this process is a rank of; null in a run of one process. `text` describes it. config.device becomes
/// this rank's. ConfigError where `dist.backend` cannot be had.
std::unique_ptr<Collective> join_group(RunConfig& config, std::string& text);

/// How many ranks that group has; 1 where there is none. Joins nothing.
int ranks_of(const RunConfig& config);

}  // namespace hearth::train
