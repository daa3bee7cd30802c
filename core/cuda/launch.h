// SPDX-License-Identifier: Apache-2.0
// The shape of a launch, and what happens around each. Kernel sources include kernel.h.
#pragma once

#include <driver_types.h>
#include <vector_types.h>

#include <cstddef>

#include "core/export.h"

namespace hearth::cuda {

struct LaunchShape {
  dim3 grid;
  dim3 block;
  std::size_t shared_bytes = 0;  ///< dynamic shared memory, for dynamic_shared<T>()
};

/// cudaFuncSetAttribute for the dynamic shared memory of a kernel. It is the launching source's own: a program that
/// links libhearth.so has a second CUDA runtime, which alone knows the program's kernels, and what became of their
/// launches.
using AllowShared = cudaError_t(const void* kernel, int bytes);

/// Counts the launch and checks the shape (InternalError); allows more than 48 KiB of shared memory.
HEARTH_API void before_launch(const char* name, const LaunchShape& shape, const void* kernel, AllowShared* allow);
/// Turns what the runtime answered into a DeviceError that names the kernel.
HEARTH_API void after_launch(const char* name, const LaunchShape& shape, cudaError_t status);

}  // namespace hearth::cuda
