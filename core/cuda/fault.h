// SPDX-License-Identifier: Apache-2.0
// What a kernel does with an index it cannot use: it notes the first one in a slot that the host reads whenever it has
// waited for the device, and goes on with something harmless. So bad labels are reported without a wait in every step.
// Kernels call report_fault of kernel.h.
#pragma once

#include <cstdint>

#include "core/cuda/stream.h"

namespace hearth::cuda {

enum class FaultKind : std::uint32_t { none, label, index, capacity };

/// In pinned host memory that the device can write.
struct FaultSlot {
  std::uint32_t kind = 0;  ///< a FaultKind
  std::int64_t value = 0;  ///< the index found, or how many elements of a list
  std::int64_t bound = 0;  ///< it must be in [0, bound); of a list, its capacity
};

/// The slot of the stream's device, as kernels take it.
HEARTH_API FaultSlot* fault_slot(Stream& stream);
/// Throws IndexError for what was noted since the last call, and clears it. Stream::wait() calls this.
HEARTH_API void throw_fault(FaultSlot& slot);

}  // namespace hearth::cuda
