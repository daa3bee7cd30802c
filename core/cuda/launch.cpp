// SPDX-License-Identifier: Apache-2.0
// The parts of a launch that are the same for every kernel.
#include <cuda_runtime_api.h>

#include <map>
#include <mutex>
#include <utility>

#include "core/build.h"
#include "core/cuda/counters.h"
#include "core/cuda/error.h"
#include "core/cuda/launch.h"

namespace hearth::cuda {
namespace {

// Without asking, a kernel has 48 KiB less its static shared memory, of which nothing is known here: so all are asked
// for, once a device.
void allow_shared(const char* name, const void* kernel, std::size_t bytes, AllowShared* allow) {
  static std::mutex mutex;
  static std::map<std::pair<int, const void*>, std::size_t> allowed;
  int device = 0;
  HEARTH_TRY(cudaGetDevice(&device));
  const std::lock_guard lock(mutex);
  std::size_t& now = allowed[{device, kernel}];
  if (bytes <= now) return;
  if (const cudaError_t status = allow(kernel, static_cast<int>(bytes)); status != cudaSuccess) {
    int most = 0;
    (void)cudaDeviceGetAttribute(&most, cudaDevAttrMaxSharedMemoryPerBlockOptin, device);
    throw DeviceError(join_text("kernel ", name, " needs ", bytes,
                                " bytes of shared memory a block, and this device has ", most, " (",
                                cudaGetErrorString(status), "); use narrower rows or heads, or another type"));
  }
  now = bytes;
}

}  // namespace

void before_launch(const char* name, const LaunchShape& shape, const void* kernel, AllowShared* allow) {
  const std::uint64_t threads = std::uint64_t{shape.block.x} * shape.block.y * shape.block.z;
  HEARTH_CHECK(InternalError, threads >= 1 && threads <= 1024, "kernel ", name, ": a block of ", threads,
               " threads; 1 to 1024 are possible");
  HEARTH_CHECK(InternalError, shape.grid.x <= 0x7fffffffu && shape.grid.y <= 65535 && shape.grid.z <= 65535, "kernel ",
               name, ": a grid of ", shape.grid.x, " x ", shape.grid.y, " x ", shape.grid.z, " blocks is too large");
  if (shape.shared_bytes > 0) allow_shared(name, kernel, shape.shared_bytes, allow);
  ++live_counters().launches;
  count_work({name, shape.bytes, kernel});
}

void after_launch(const char* name, const LaunchShape& shape, cudaError_t status) {
  HEARTH_CHECK(DeviceError, status == cudaSuccess, "kernel ", name, " with ", shape.grid.x, " x ", shape.grid.y, " x ",
               shape.grid.z, " blocks of ", shape.block.x, " x ", shape.block.y, " x ", shape.block.z,
               " threads: ", cudaGetErrorString(status), fault_details());
}

}  // namespace hearth::cuda
