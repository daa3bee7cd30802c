// SPDX-License-Identifier: Apache-2.0
// What the process knows of each CUDA device. Made at first use and kept until the process ends, on purpose: tensors in
// static objects may outlive everything else. For sources of the CUDA backend only.
#pragma once

#include <cuda_runtime_api.h>

#include <memory>

#include "hearth/core/cuda/fault.h"
#include "hearth/core/cuda/stream.h"
#include "hearth/core/memory.h"

namespace hearth::cuda {

struct DeviceState {
  Device device;
  cudaDeviceProp properties;
  Stream compute;  ///< every tensor of the device is made, used and freed on it
  FaultSlot* faults = nullptr;
};

/// Makes `device` the calling thread's current one. DeviceError if there is no such device.
DeviceState& state_of(Device device);

}  // namespace hearth::cuda
