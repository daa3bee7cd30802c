// SPDX-License-Identifier: Apache-2.0
// How much memory a run may take.
#pragma once

#include <cstdint>

#include "core/device.h"

namespace hearth::train {

/// What a device grants.
struct MemoryBudget {
  /// Most bytes in use, as HEARTH_MEMORY_LIMIT_MB or a control group limits them; -1 for no limit.
  std::int64_t limit = -1;
  std::int64_t available = -1;  ///< most bytes from the system; -1 if not known
  /// Whether `used` bytes in use at once, and `reserved` from the system, are within both.
  bool holds(std::int64_t used, std::int64_t reserved) const;
  /// The smaller of the two.
  std::int64_t bytes() const;
};
/// Of a device of this machine.
MemoryBudget memory_budget(Device device);

}  // namespace hearth::train
