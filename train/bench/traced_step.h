// SPDX-License-Identifier: Apache-2.0
// A step of a StepBench as the device ran it.
#pragma once

#include "train/bench/step_bench.h"
#include "train/profile/trace/step_tracer.h"

namespace hearth::train {

/// The quickest of three steps, of replays where steps are replayed. DeviceError where CUPTI is not there
/// (cuda::why_no_device_trace).
DeviceActivity traced_step(StepBench& bench);

}  // namespace hearth::train
