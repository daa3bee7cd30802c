// SPDX-License-Identifier: Apache-2.0
// The time of a step's ops on a machine: a roofline for each op (Williams et al. 2009). An op takes as long as its
// arithmetic and its memory traffic at the rates that its class reaches, and a constant for the call. A GPU hides the
// shorter of the two behind the longer; on a CPU they add up, as a core that waits for memory computes little.
#pragma once

#include "core/export.h"
#include "train/plan/machine.h"
#include "train/plan/step_ops.h"

namespace hearth::train {

/// The class of what an implementation's arithmetic is, or, without one, of an op's memory traffic.
HEARTH_API double Efficiency::*class_of(const StepOp& op, const OpPart* part, bool cuda);

/// Microseconds of one op call whose products are in `type`.
HEARTH_API double predicted_us(const StepOp& op, const Machine& machine, ComputeType type);

/// What its operands and results take of that. What fits caches comes from there; of more, as much.
HEARTH_API double traffic_us(const StepOp& op, const Machine& machine, ComputeType type);

/// The ops with the times that the machine needs for them, in place of the recorded ones; `us` becomes their sum.
HEARTH_API StepOps on_machine(StepOps step, const Machine& machine, ComputeType type);

}  // namespace hearth::train
