// SPDX-License-Identifier: Apache-2.0
// Counters of the blocks of a launch that have come to a point, by which the last one to come knows that it is that and
// goes on with what all have left (last_to_arrive of kernel.h). So what would need a launch of its own behind the first
// is done in the same.
#pragma once

#include <cstdint>

#include "core/cuda/stream.h"

namespace hearth::cuda {

/// How many there are.
inline constexpr std::int64_t arrival_counters_there = 1 << 16;

/// The counters of the stream's device, in its memory: zeros before and after each launch, as whoever arrives last sets
/// its counter back. Launches follow each other on the stream, so each may use all of them.
HEARTH_API unsigned* arrival_counters(Stream& stream);

}  // namespace hearth::cuda
