// SPDX-License-Identifier: Apache-2.0
// What a device did and when, by CUPTI's activity records: each kernel's own time, within graphs too.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace hearth::cuda {

struct DeviceSpan {
  enum class Kind : std::uint8_t { kernel, copy, fill };
  Kind kind = Kind::kernel;
  std::string name{};                      ///< of a kernel, as the compiler mangled it; else what is done
  std::uint64_t begin_ns = 0, end_ns = 0;  ///< by the host's steady clock
  std::uint32_t stream = 0;
  std::int64_t blocks = 0, threads = 0;  ///< of a kernel: in the grid, and in a block
  std::int64_t registers = 0;            ///< of a thread
  std::int64_t shared_bytes = 0;         ///< of a block

  double microseconds() const { return 1e-3 * static_cast<double>(end_ns - begin_ns); }
};

/// Why the device's own times cannot be had, with the remedy; empty if they can.
std::string why_no_device_trace();

/// Records what devices do during its life. Graphs must be made during it for their kernels to be seen one by one. One
/// at a time; DeviceError where CUPTI refuses.
class DeviceTrace {
 public:
  DeviceTrace();
  ~DeviceTrace();
  DeviceTrace(const DeviceTrace&) = delete;
  DeviceTrace& operator=(const DeviceTrace&) = delete;

  /// What the devices did since the construction or the last call, in order of begin; the caller has waited for them.
  /// OutOfMemory where there was none for it.
  std::vector<DeviceSpan> take();
};

}  // namespace hearth::cuda
