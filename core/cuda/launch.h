// SPDX-License-Identifier: Apache-2.0
// The shape of a launch, and what happens around each. Kernel sources include kernel.h.
#pragma once

#include <driver_types.h>
#include <vector_types.h>

#include <cstddef>
#include <cstdint>

#include "core/export.h"

namespace hearth::cuda {

struct LaunchShape {
  dim3 grid;
  dim3 block;
  std::size_t shared_bytes = 0;  ///< dynamic shared memory, for dynamic_shared<T>()
  std::int64_t bytes = -1;       ///< read and written in the device's memory, each operand once; -1: not declared

  LaunchShape moving(std::int64_t count) const { return {grid, block, shared_bytes, count}; }
};

/// Bytes of the elements of all these tensors, for LaunchShape::bytes. An absent tensor has none; what an axis of
/// stride 0 repeats counts once.
template <class... Tensors>
std::int64_t bytes_of(const Tensors&... tensors) {
  const auto of_one = [](const auto& x) -> std::int64_t {
    if (!x.defined()) return 0;
    auto bytes = static_cast<std::int64_t>(size_of(x.dtype()));
    for (int axis = 0; axis < x.rank(); ++axis)
      if (x.strides()[axis] != 0 || x.dim(axis) == 0) bytes *= x.dim(axis);
    return bytes;
  };
  return (std::int64_t{0} + ... + of_one(tensors));
}
/// cudaFuncSetAttribute for the dynamic shared memory of a kernel. It is the launching source's own: a program that
/// links libhearth.so has a second CUDA runtime, which alone knows the program's kernels, and what became of their
/// launches.
using AllowShared = cudaError_t(const void* kernel, int bytes);

/// Counts the launch and checks the shape (InternalError); allows more than 48 KiB of shared memory.
HEARTH_API void before_launch(const char* name, const LaunchShape& shape, const void* kernel, AllowShared* allow);
/// Turns what the runtime answered into a DeviceError that names the kernel.
HEARTH_API void after_launch(const char* name, const LaunchShape& shape, cudaError_t status);

}  // namespace hearth::cuda
