// SPDX-License-Identifier: Apache-2.0
// What compressed gradients go with.
#pragma once

#include "core/device.h"
#include "train/config/run_config.h"

namespace hearth::train {

/// How the gradients of a run are compressed. ConfigError, naming the key, where dist.compress does not go with the
/// device, deterministic mode, the optimizer or train.clip_norm.
dist::StrategyFactory compression_of(const RunConfig& config, Device device, std::int64_t steps_per_epoch);

}  // namespace hearth::train
