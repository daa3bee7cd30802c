// SPDX-License-Identifier: Apache-2.0
// From a device to its stream, whose C++ type picks the kernel overload.
#pragma once

#include <utility>

#include "core/build.h"
#include "core/cpu/stream.h"
#include "core/cuda/stream.h"
#include "core/error.h"

namespace hearth {

/// While it lives, this thread runs kernels, whose pointers do not count as writes (Tensor::data): what calls a kernel
/// says itself what that changes.
class HEARTH_API KernelScope {
 public:
  KernelScope() noexcept;
  ~KernelScope();
  KernelScope(const KernelScope&) = delete;
  KernelScope& operator=(const KernelScope&) = delete;
};

/// f(stream of `device`). In a build without CUDA the CUDA overloads that f calls are never asked for.
template <class F>
decltype(auto) with_stream(Device device, F&& f) {
#if HEARTH_HAS_CUDA
  if (device.type == DeviceType::cuda) return f(cuda::stream_of(device));
#else
  HEARTH_CHECK(DeviceError, device.is_cpu(), "device ", name_of(device),
               ": this build of Hearth has the CPU backend only; build it with -DHEARTH_CUDA=ON, or use cpu");
#endif
  return f(cpu::stream_of(device));
}

/// The same, within a KernelScope.
template <class F>
decltype(auto) run_on(Device device, F&& f) {
  const KernelScope kernels;
  return with_stream(device, std::forward<F>(f));
}

/// Waits for what a CUDA device has been asked for; a CPU has done it.
inline void wait_for(Device device) {
  with_stream(device, [](auto& stream) {
    if constexpr (requires { stream.wait(); }) stream.wait();
  });
}

}  // namespace hearth
