// SPDX-License-Identifier: Apache-2.0
// The shape of a launch, and what happens around each. Kernel sources include kernel.h.
#pragma once

#include <vector_types.h>

#include <cstddef>

#include "core/export.h"

namespace hearth::cuda {

struct LaunchShape {
  dim3 grid;
  dim3 block;
  std::size_t shared_bytes = 0;  ///< dynamic shared memory, for dynamic_shared<T>()
};

/// Counts the launch and checks the shape (InternalError); allows more than 48 KiB of shared memory.
HEARTH_API void before_launch(const char* name, const LaunchShape& shape, const void* kernel);
/// Turns what the runtime answered into a DeviceError that names the kernel.
HEARTH_API void after_launch(const char* name, const LaunchShape& shape);

}  // namespace hearth::cuda
