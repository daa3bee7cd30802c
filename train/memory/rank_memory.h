// SPDX-License-Identifier: Apache-2.0
// The memory of each rank of a data parallel run.
#pragma once

#include <cstdint>
#include <vector>

#include "core/device.h"
#include "train/memory/step_memory.h"

namespace hearth::train {

/// Bytes of what ranks may have a part of each.
struct RankStates {
  std::int64_t values = 0;     ///< that are updated, and those of their type that the model computes with
  std::int64_t gradients = 0;  ///< that stay from piece to piece
  std::int64_t optimizer = 0;  ///< moments of the weights
  std::int64_t averages = 0;   ///< of weights; those of buffers every rank has
};

/// What each of so many ranks has of a run's states, by its `dist.zero`. `session` has them whole.
std::vector<RankStates> states_of_ranks(const Session& session, int ranks);

/// What each of so many ranks needs for its rows of a batch, on a device of the kind `target`, as StepMemory finds it.
/// The session is that of one process; it is made anew afterwards.
std::vector<MemoryNeed> memory_of_ranks(Session& session, DeviceType target, int ranks);

}  // namespace hearth::train
