// SPDX-License-Identifier: Apache-2.0
// Where a training step's time on the CPU went, by the profiler's scopes.
#pragma once

#include <span>
#include <string>

#include "core/export.h"
#include "core/profiler_spans.h"
#include "train/profile/profile_rows.h"

namespace hearth::train {

/// "conv2d", "conv2d (backward)" or "optimizer".
std::string name_of_op(const profiler::Span& span);

/// The calling thread's spans of `steps` steps, which took so long together, as a step of `hearth bench step
/// --profile`: "milliseconds", "busy_milliseconds" in operations and "gap_milliseconds" in none, "floor_milliseconds"
/// (what bytes or arithmetic of each op take at the limits), "phases", "ops" (forward and backward apart) and "kernels"
/// (the implementations that ran, and ops that have no choice of these) as a device's profile has them. Scopes count
/// without those inside. Bytes are the least: operands and results, which are those of the op, not of the
/// implementation.
HEARTH_API Json host_profile(std::span<const profiler::Span> spans, double milliseconds, int steps,
                             const ProfileLimits& limits);

}  // namespace hearth::train
