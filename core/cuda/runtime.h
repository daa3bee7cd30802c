// SPDX-License-Identifier: Apache-2.0
// What the process knows of each CUDA device. Made at first use and kept until the process ends, on purpose: tensors in
// static objects may outlive everything else. For sources of the CUDA backend only.
#pragma once

#include <cuda_runtime_api.h>

#include <array>
#include <cstddef>
#include <cstdint>

#include "core/cuda/fault.h"
#include "core/cuda/stream.h"
#include "core/memory/memory.h"

namespace hearth::cuda {

/// Slots of pinned memory, handed out in turn; see staging.h.
class StagingRing {
 public:
  static constexpr std::size_t slots = 1024, half = slots / 2, slot_bytes = 256;

  StagingRing();
  /// A slot that no queued copy reads any more.
  std::byte* next(Stream& stream);

 private:
  std::byte* slots_ = nullptr;
  std::array<cudaEvent_t, 2> passed_{};
  std::size_t next_ = 0;
};

struct DeviceState {
  Device device;
  cudaDeviceProp properties;
  Stream compute;  ///< every tensor of the device is made, used and freed on it
  FaultSlot* faults = nullptr;
  StagingRing staging;
  std::uint64_t* random_step = nullptr;  ///< in device memory; see graph.h
  unsigned* arrivals = nullptr;          ///< in device memory; see arrivals.h
};

/// Makes `device` the calling thread's current one. DeviceError if there is no such device, or none that this build has
/// kernels for.
DeviceState& state_of(Device device);

/// Of the library, for asking whether a device can run them.
const void* any_kernel();

}  // namespace hearth::cuda
