// SPDX-License-Identifier: Apache-2.0
// How long the plans of a vendor's library take on a CUDA device. Knows no library.
#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <vector>

#include "core/device.h"
#include "ops/dispatch/plan_file.h"
#include "ops/dispatch/plan_timing.h"

namespace hearth::cuda {

/// What the choice for a problem on this device is kept as. `library` is with its version.
PlanKey plan_key(std::string library, Device device, std::string problem);

/// What a plan is timed on.
struct TimedWork {
  std::size_t operands = 0;   ///< bytes of one set of operands
  std::size_t workspace = 0;  ///< bytes that the neediest plan takes beside them
  double flops = 0;           ///< of one run
};
/// Queues one run of plan `way` on a set of operands; false if the library refuses.
using RunPlan = std::function<bool(std::size_t way, std::size_t set)>;
/// Makes it, for sets of operands that begin at these addresses, multiples of 256.
using PrepareRuns = std::function<RunPlan(const std::vector<std::byte*>& sets, std::byte* workspace)>;

/// The fastest of these plans, on memory of its own that the device's caches do not hold: as many sets of operands as
/// three times the second-level cache takes, used in turn. An infinite time if the device has too little memory for
/// that. Waits for the device. DeviceError while a step is recorded.
Fastest fastest_plan(Device device, std::size_t plans, const TimedWork& work, const PrepareRuns& prepare);

}  // namespace hearth::cuda
