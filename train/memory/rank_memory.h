// SPDX-License-Identifier: Apache-2.0
// The memory of each rank of a data parallel run.
#pragma once

#include <cstdint>
#include <vector>

#include "train/memory/step_memory.h"

namespace hearth::train {

/// Bytes of what ranks may have a part of each.
struct RankStates {
  std::int64_t values = 0;     ///< f32 values; those of low precision every rank has
  std::int64_t optimizer = 0;  ///< moments of the weights
  std::int64_t averages = 0;   ///< of weights; those of buffers every rank has
};

/// What each of so many ranks has of a run's states, by its `dist.zero`. `session` has them whole.
std::vector<RankStates> states_of_ranks(const Session& session, int ranks);

/// What each of so many ranks needs for its rows of a batch. The session has the states whole, and is that of `memory`.
std::vector<MemoryNeed> memory_of_ranks(const Session& session, const StepMemory& memory, std::int64_t batch,
                                        int ranks);

}  // namespace hearth::train
