// SPDX-License-Identifier: Apache-2.0
// Small values from the host to the device without a wait: through a ring of pinned memory.
#pragma once

#include <cstddef>

#include "core/cuda/stream.h"

namespace hearth::cuda {

/// Queues a copy of at most 256 bytes; `value` may be reused at once.
HEARTH_API void stage(Stream& stream, void* device, const void* value, std::size_t bytes);

}  // namespace hearth::cuda
