// SPDX-License-Identifier: Apache-2.0
// The description of the machine at hand, by measurement.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "core/export.h"
#include "train/plan/machine.h"
#include "train/plan/step_ops.h"

namespace hearth::train {

/// Measures copies, products and a few ops at sizes of the reference models, in about fifteen seconds. `name` is the
/// machine's.
HEARTH_API Machine measure_machine(Device device, const std::string& name);

/// The ops' own efficiencies from op calls with their measured times, as `machine` would predict them without any:
/// "conv2d:winograd (backward)/f32", "layer_norm/bf16". Classes get the mean of their ops.
HEARTH_API void set_efficiencies(Machine& machine, const std::vector<std::pair<StepOp, ComputeType>>& measured);

}  // namespace hearth::train
