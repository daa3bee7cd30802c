// SPDX-License-Identifier: Apache-2.0
// The emulated CUDA runtime: the C functions of cuda_runtime_api.h are defined here instead of being linked from
// libcudart, so the host code of the backend is compiled unchanged. Memory is the host's, between guard pages; streams
// are queues of closures that run on the calling thread, in an order that HEARTH_EMULATE_STREAMS chooses among the
// legal ones. This header is what the engine and the tests see beyond the C functions.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

namespace hearth::cuda::emulate {

/// Queues a kernel on the stream, or records it as a node of the graph that the stream captures. What goes wrong here
/// (a destroyed stream, another device's stream, a broken capture) is answered by the next cudaGetLastError(), as for a
/// launch. An exception of `work` becomes cudaErrorLaunchFailure at the next call that waits or launches; see
/// last_fault().
void enqueue_work(cudaStream_t stream, const char* name, std::function<void()> work);

/// The same for work that waits for work of other streams, of this thread or others, without an event between them: it
/// runs once it is next in its stream and `ready` says so. Who waits for it lets other threads queue theirs meanwhile.
/// Both are called under the runtime's lock. cudaErrorNotPermitted where the work cannot be queued.
cudaError_t enqueue_meeting(cudaStream_t stream, const char* name, std::function<bool()> ready,
                            std::function<void()> work);
/// Looks again at who waits, when something else than queued work has made `ready` true.
void meetings_changed();
/// f() under the runtime's lock.
void under_the_lock(const std::function<void()>& f);

/// What the runtime has to say beyond the status of the latest failure: the text of the exception that a kernel threw,
/// the range that a copy overran, the call that a capture does not allow. Empty if nothing failed yet.
std::string last_fault();

/// What cudaFuncSetAttribute allowed this kernel of dynamic shared memory on the current device, in bytes; 0 if
/// nothing.
std::size_t shared_asked(const void* kernel);
/// The same, or 48 KiB, of which static shared memory then takes its part.
std::size_t dynamic_shared_limit(const void* kernel);

enum class MemoryKind { device, pinned };

/// A piece of memory that kernels may touch.
struct MemoryBlock {
  std::byte* begin = nullptr;
  std::size_t bytes = 0;
  MemoryKind kind = MemoryKind::device;
  int device = 0;
  std::uint64_t serial = 0;  ///< never given twice
};

/// The live block that holds this address. Also kernels (on the thread that runs them) may ask.
std::optional<MemoryBlock> block_at(const void* address);
/// For messages: "byte 40 of a freed block of 512 bytes", "host memory that is not pinned", ...
std::string describe_address(const void* address);

/// Which of the legal orders queued work runs in.
struct StreamPolicy {
  enum class Kind {
    eager,  ///< at once, when it is queued
    lazy,   ///< only when something waits for it, and nothing else then
    seeded  ///< anything legal, chosen by `seed`
  };
  Kind kind = Kind::eager;
  std::uint64_t seed = 0;
};
/// "eager", "lazy" or a number. ConfigError for anything else.
StreamPolicy stream_policy_named(std::string_view name);

/// Whether and how the host may touch device memory while nothing runs; see HEARTH_EMULATE_PROTECT.
enum class HostAccess { allowed, faults };

struct Settings {
  int devices = 2;                                  ///< HEARTH_EMULATE_DEVICES, 1 to 16
  std::size_t memory_bytes = std::size_t{4} << 30;  ///< of each device; HEARTH_EMULATE_MEMORY_MB
  StreamPolicy streams;                             ///< HEARTH_EMULATE_STREAMS
  HostAccess host_access = HostAccess::allowed;
  /// HEARTH_EMULATE_IDLE: kernels, copies and fills are queued and do nothing, and fresh memory is not touched: what
  /// the host asks for can be counted at sizes that no host has memory for.
  bool idle = false;
  int capability = 90;          ///< HEARTH_EMULATE_CAPABILITY, 86 for 8.6; kernels are there from 90 on
  int driver = CUDART_VERSION;  ///< HEARTH_EMULATE_DRIVER: the CUDA version it can do, 12040 for 12.4; 0: no driver
};
/// What the environment asks for. ConfigError, naming the variable, if it makes no sense.
Settings settings_from_environment();
Settings settings();
/// Runs all that is queued, forgets errors, and goes on with these settings. Devices may only be added. For tests.
void apply(const Settings& settings);

/// Work that ran on a device, as a profiler sees it.
struct RanWork {
  std::string name;  ///< a launch's; "copy", "copy in", "copy out" or "fill"; what a library calls it
  bool kernel = true;
  std::uint64_t begin_ns = 0, end_ns = 0;
};
/// Who is told of all work after it ran, also of an idle device's, under the runtime's lock; null: nobody.
void watch_work(std::function<void(const RanWork&)> watcher);

/// Device memory in use now, in bytes, as cudaMemGetInfo counts it.
std::size_t memory_in_use(int device);

}  // namespace hearth::cuda::emulate
