// SPDX-License-Identifier: Apache-2.0
// The factors by which LARS and LAMB scale the steps of parameters, in training metrics.
#pragma once

#include "core/io/json_text.h"
#include "optim/optimizer.h"

namespace hearth::train {

/// Sets `trust_ratio` of a record to {"<group>": {"min", "median", "max"}} of the last update; leaves the record as it
/// is where the optimizer has no ratios. A ratio that is not finite becomes null. Waits for the device.
HEARTH_API void write_trust_ratios(Json& record, const optim::Optimizer& optimizer);

}  // namespace hearth::train
