// SPDX-License-Identifier: Apache-2.0
#include "core/cuda/memory.h"

#include <cuda_runtime_api.h>

#include <atomic>

#include "core/cuda/counters.h"
#include "core/cuda/error.h"
#include "core/cuda/graph.h"
#include "core/cuda/runtime.h"

namespace hearth::cuda {
namespace {

/// Memory that is taken while a step is recorded would be there in its replays only, or not at all.
void refuse_growth(Device device) { refuse_while_recording(device, "memory beyond what the step took before"); }

class DeviceRegions final : public RegionSource {
 public:
  explicit DeviceRegions(Device device) : device_(device), stream_(state_of(device).compute.raw()) {}

  std::byte* map(std::size_t& bytes) override {
    refuse_growth(device_);
    state_of(device_);
    // The driver may put two regions side by side; what is left unused keeps their blocks apart.
    const std::size_t comfortable = bytes > min_cuda_region - pool_granule ? bytes : min_cuda_region - pool_granule;
    for (const std::size_t size : {comfortable, bytes}) {
      void* base = nullptr;
      if (cudaMalloc(&base, size + pool_granule) == cudaSuccess) {
        ++live_counters().allocations;
        bytes = size;
        return static_cast<std::byte*>(base);
      }
      (void)cudaGetLastError();
    }
    return nullptr;
  }
  // Whether cudaFree waits for what still uses the memory is left open by its documentation.
  void unmap(std::byte* base) noexcept override {
    cudaStreamSynchronize(stream_);
    cudaFree(base);
  }

 private:
  Device device_;
  cudaStream_t stream_;
};

/// Every block from the driver, in the order of the stream.
class DriverMemory final : public MemoryResource {
 public:
  explicit DriverMemory(Device device) : device_(device) { state_of(device); }

  void* allocate(std::size_t bytes) override {
    refuse_growth(device_);
    void* pointer = nullptr;
    const cudaError_t status = cudaMallocAsync(&pointer, bytes == 0 ? 1 : bytes, state_of(device_).compute.raw());
    if (status != cudaSuccess) {
      (void)cudaGetLastError();
      throw OutOfMemory(join_text("out of memory on ", device_, ": ", bytes, " bytes asked, ", in_use_.load(),
                                  " in use: ", cudaGetErrorString(status),
                                  "; use a smaller batch, or a lower precision"));
    }
    ++live_counters().allocations;
    in_use_ += static_cast<std::int64_t>(bytes);
    ++allocations_;
    return pointer;
  }
  void deallocate(void* pointer, std::size_t bytes) noexcept override {
    in_use_ -= static_cast<std::int64_t>(bytes);
    cudaFreeAsync(pointer, state_of(device_).compute.raw());
  }
  MemoryStatistics statistics() const override { return {in_use_, in_use_, in_use_, allocations_, allocations_}; }
  void reset_peak() override {}

 private:
  Device device_;
  std::atomic<std::int64_t> in_use_{0};
  std::atomic<std::int64_t> allocations_{0};
};

}  // namespace

std::unique_ptr<MemoryResource> make_memory(Device device, bool pool) {
  if (pool) return make_pool_memory(std::make_unique<DeviceRegions>(device));
  return std::make_unique<DriverMemory>(device);
}

std::int64_t free_memory(Device device) {
  state_of(device);
  std::size_t available = 0, total = 0;
  HEARTH_TRY(cudaMemGetInfo(&available, &total));
  return static_cast<std::int64_t>(available);
}

std::size_t max_shared_memory(Device device) {
  state_of(device);
  int bytes = 0;
  HEARTH_TRY(cudaDeviceGetAttribute(&bytes, cudaDevAttrMaxSharedMemoryPerBlockOptin, device.index));
  return static_cast<std::size_t>(bytes);
}

}  // namespace hearth::cuda
