// SPDX-License-Identifier: Apache-2.0
// Ways to compress gradients by name, for run configurations.
#pragma once

#include <cstdint>

#include "core/config/config.h"
#include "dist/strategy/strategy.h"

namespace hearth::dist {

/// What a way to compress takes from the run.
struct CompressionInfo {
  std::uint64_t seed = 0;
  std::int64_t steps_per_epoch = 1;
  // Of SGD.
  double momentum = 0;
  bool nesterov = false;
};

using Compressions = Registry<StrategyFactory(const CompressionInfo&)>;
/// "onebit", "int8", "dgc", "powersgd".
HEARTH_API Compressions& compressions();

}  // namespace hearth::dist
