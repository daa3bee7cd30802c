// SPDX-License-Identifier: Apache-2.0
// CUDA's words for kernels, as C++ on the emulated GPU; included through core/cuda/kernel.h only. What is missing here
// is missing on purpose, or not yet needed: `__shared__` (HEARTH_SHARED), `__activemask`, textures, grid-wide waits.
#pragma once

#include <cuda_runtime_api.h>
#include <vector_functions.h>

#include <cstddef>
#include <functional>
#include <memory>
#include <tuple>
#include <type_traits>

#include "tests/emulated_gpu/atomics.h"
#include "tests/emulated_gpu/device_math.h"
#include "tests/emulated_gpu/engine.h"
#include "tests/emulated_gpu/runtime.h"
#include "tests/emulated_gpu/warp.h"

#define __launch_bounds__(...)

// Shared memory by CUDA's own word would be one copy for all blocks and threads of the host.
#undef __shared__
#define __shared__ shared_memory_is_declared_with_HEARTH_SHARED

/// HEARTH_SHARED(float, tile, [16][68]);
#define HEARTH_SHARED(type, name, ...)                                                       \
  using name##_shared_type = type __VA_ARGS__;                                               \
  static HEARTH_EMULATE_THREAD_LOCAL ::hearth::cuda::emulate::SharedSlot name##_shared_slot{ \
      #name, sizeof(name##_shared_type)};                                                    \
  name##_shared_type& name =                                                                 \
      *static_cast<name##_shared_type*>(::hearth::cuda::emulate::shared_variable(name##_shared_slot))

/// By reference: a copy for each thread would cost more than the kernel.
#define HEARTH_GRID_CONSTANT(type) const type&

namespace hearth::cuda::emulate {

/// The launch as work to be queued: checks it, copies the arguments, and returns what runs the whole grid.
template <class... Parameters, class... Arguments>
std::function<void()> kernel_work(const char* name, dim3 grid, dim3 block, std::size_t shared_bytes,
                                  void (*kernel)(Parameters...), const Arguments&... arguments) {
  static_assert((std::is_trivially_copyable_v<std::remove_cvref_t<Parameters>> && ...),
                "the arguments of a kernel are copied as bytes");
  static_assert((sizeof(std::remove_cvref_t<Parameters>) + ... + 0) <= 32764, "a kernel takes at most 32764 bytes");
  const Launch launch{name, grid, block, shared_bytes,
                      shared_bytes > 0 ? shared_asked(reinterpret_cast<const void*>(kernel)) : 0};
  check_launch(launch);
  note_launch(reinterpret_cast<const void*>(kernel), block);
  struct Bound {
    void (*kernel)(Parameters...);
    std::tuple<std::remove_cvref_t<Parameters>...> arguments;
  };
  return [launch, bound = Bound{kernel, {arguments...}}] {
    const auto thread = [](const void* p) {
      const Bound& it = *static_cast<const Bound*>(p);
      std::apply(it.kernel, it.arguments);
    };
    run_launch(launch, {thread, &bound, sizeof(bound)});
  };
}

/// Queues the kernel on the stream. InternalError at once if the device could not take the launch.
template <class... Parameters, class... Arguments>
void launch_kernel(cudaStream_t stream, const char* name, dim3 grid, dim3 block, std::size_t shared_bytes,
                   void (*kernel)(Parameters...), const Arguments&... arguments) {
  enqueue_work(stream, name, kernel_work(name, grid, block, shared_bytes, kernel, arguments...));
}

}  // namespace hearth::cuda::emulate

// --- barriers and the like
// --------------------------------------------------------------------------------------------

inline void __syncthreads(const std::source_location& at = std::source_location::current()) {
  hearth::cuda::emulate::block_barrier(false, at);
}
inline int __syncthreads_count(int vote, const std::source_location& at = std::source_location::current()) {
  return static_cast<int>(hearth::cuda::emulate::block_barrier(vote != 0, at));
}
inline int __syncthreads_or(int vote, const std::source_location& at = std::source_location::current()) {
  return hearth::cuda::emulate::block_barrier(vote != 0, at) != 0;
}
inline int __syncthreads_and(int vote, const std::source_location& at = std::source_location::current()) {
  return hearth::cuda::emulate::block_barrier(vote == 0, at) == 0;
}

// One thread runs at a time, so memory is always in order.
inline void __threadfence() {}
inline void __threadfence_block() {}
inline void __threadfence_system() {}

[[noreturn]] inline void __trap(const std::source_location& at = std::source_location::current()) {
  hearth::cuda::emulate::fault("the kernel gave up (__trap)", at);
}
