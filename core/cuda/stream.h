// SPDX-License-Identifier: Apache-2.0
// The NVIDIA backend's stream. Its C++ type selects CUDA kernels by overloading. Work is queued in order; nothing waits
// unless a name says so. Each device has one stream for computing, on which every tensor is made, used and freed.
#pragma once

#include <cstdint>
#include <string>

#include "core/device.h"

struct CUstream_st;

namespace hearth::cuda {

class HEARTH_API Stream {
 public:
  Stream(Device device, CUstream_st* raw) : device_(device), raw_(raw) {}

  Device device() const { return device_; }
  /// The runtime's handle, a cudaStream_t.
  CUstream_st* raw() const { return raw_; }
  /// Waits until everything queued so far is done; throws what the device reported meanwhile.
  void wait() const;

 private:
  Device device_;
  CUstream_st* raw_;
};

/// The computing stream of a CUDA device. DeviceError, with what was found and the remedy, if there is no such device.
HEARTH_API Stream& stream_of(Device device);

/// Number of usable devices, asked of the driver once.
HEARTH_API int device_count();
/// What the driver says of a device.
struct DeviceInfo {
  std::string name;        ///< "NVIDIA H200"
  std::string capability;  ///< "9.0"
  int multiprocessors = 0;
  std::int64_t memory_bytes = 0;
  std::string driver;       ///< the CUDA version that the driver can do, "13.0"
  std::string runtime;      ///< the CUDA version of this build
  std::string unsupported;  ///< why this build cannot compute on it, with the remedy; empty if it can
  std::string uuid;         ///< "0a1b2c3d-...", whatever its number is
};
HEARTH_API DeviceInfo device_info(Device device);

/// Why there is none, with the remedy; empty if there is one.
HEARTH_API std::string why_no_device();

}  // namespace hearth::cuda
