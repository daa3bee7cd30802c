// SPDX-License-Identifier: Apache-2.0
#include "train/memory/memory_budget.h"

#include <algorithm>

#include "core/memory/memory.h"

namespace hearth::train {

bool MemoryBudget::holds(std::int64_t used, std::int64_t reserved) const {
  return (limit < 0 || used <= limit) && (available < 0 || reserved <= available);
}

std::int64_t MemoryBudget::bytes() const {
  if (limit < 0 || available < 0) return std::max(limit, available);
  return std::min(limit, available);
}

MemoryBudget memory_budget(Device device) { return {memory_of(device).statistics().limit, available_memory(device)}; }

}  // namespace hearth::train
