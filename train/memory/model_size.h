// SPDX-License-Identifier: Apache-2.0
// How much memory a model takes, before it is built.
#pragma once

#include <cstdint>

#include "models/registry.h"
#include "train/config/run_config.h"

namespace hearth::train {

/// OutOfMemory, with the number of parameters, if what a rank of `ranks` keeps of the weights, their gradients and,
/// where it trains, of the optimizer's state does not fit `available` bytes. Builds the model once without touching
/// memory for its weights, and stops where they have become too many.
void require_model_fits(const RunConfig& config, const models::InputInfo& input, bool trains, int ranks,
                        std::int64_t available);

}  // namespace hearth::train
