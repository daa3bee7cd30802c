// SPDX-License-Identifier: Apache-2.0
// Device memory, ordered by the device's computing stream: a block freed on the host may be handed out again at once,
// because what uses it next is queued behind what used it before.
#pragma once

#include <memory>

#include "core/memory/memory.h"

namespace hearth::cuda {

/// A pool over large regions from the driver or, with `pool` false, every block from the driver itself, so that
/// compute-sanitizer and the emulated GPU see each tensor's bounds. DeviceError if there is no such device.
std::unique_ptr<MemoryResource> make_memory(Device device, bool pool);

/// Bytes that the driver would still give.
std::int64_t free_memory(Device device);

/// Bytes of shared memory that a kernel's block may have, static and dynamic.
std::size_t max_shared_memory(Device device);

}  // namespace hearth::cuda
