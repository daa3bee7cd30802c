// SPDX-License-Identifier: Apache-2.0
// The SIMT engine of the emulated GPU: runs a kernel's blocks one after the other, the threads of a block in turns on
// stacks of their own. A thread runs until it must wait for others, at a barrier or a warp operation. A kernel that
// never waits runs as a plain loop on one stack. What CUDA leaves open is done in a settable order, and what it forbids
// is an InternalError that names the kernel, the block, the thread and the source line.
#pragma once

#include <vector_types.h>

#include <cstddef>
#include <cstdint>
#include <source_location>
#include <string>
#include <string_view>

// Visible in every program that links Hearth statically or at its start; saves a call at each access.
#define HEARTH_EMULATE_THREAD_LOCAL thread_local constinit __attribute__((tls_model("initial-exec")))

// The words every kernel uses, in the global namespace as in CUDA. The engine sets them at each change of thread.
inline HEARTH_EMULATE_THREAD_LOCAL uint3 threadIdx{};
inline HEARTH_EMULATE_THREAD_LOCAL uint3 blockIdx{};
inline HEARTH_EMULATE_THREAD_LOCAL dim3 blockDim{};
inline HEARTH_EMULATE_THREAD_LOCAL dim3 gridDim{};
inline constexpr int warpSize = 32;

namespace hearth::cuda::emulate {

using Place = std::source_location;

/// A kernel launch without its arguments.
struct Launch {
  const char* name;
  dim3 grid;
  dim3 block;
  std::size_t shared_bytes = 0;  ///< dynamic shared memory a block
  std::size_t shared_asked = 0;  ///< of which so much was asked for; 0: nothing was
};

inline constexpr std::size_t static_shared_limit = 48 * 1024;
inline constexpr std::size_t shared_limit = 227 * 1024;

/// InternalError unless the device can take this launch.
void check_launch(const Launch& launch);

/// For the file that HEARTH_EMULATE_LAUNCHES names; see launch_log.cpp.
void note_launch(const void* kernel, const dim3& block);

/// A kernel with its arguments: body(arguments) is what one thread calls.
struct Call {
  void (*body)(const void* arguments);
  const void* arguments;
  std::size_t argument_bytes;
};

/// Runs the whole grid now. Throws what the first faulty thread threw; the engine can be used again afterwards.
void run_launch(const Launch& launch, const Call& call);

/// The order in which threads and blocks take turns where CUDA leaves it open: "forward", "reverse", or a number, the
/// seed of a shuffle. Holds for the launches that follow on all host threads. At the start it is what the environment
/// variable HEARTH_EMULATE_ORDER says, else forward. UsageError for another word.
void set_order(std::string_view order);
/// The order in force, in the same words.
std::string order();

/// Of launches with more blocks only so many run, the first and the last ones; 0: all. What the others would have
/// written keeps what it held. For tests of sizes that nothing could compute whole.
void set_blocks_at_ends(std::uint64_t count);

// What follows is called by kernels only.

/// Throws InternalError with the kernel, block, thread and place before the message.
[[noreturn]] void fault(const std::string& message, const Place& place);

/// Waits for all threads of the block that have not returned. The votes are counted; every thread gets the count.
unsigned block_barrier(bool vote, const Place& place);
/// Threads of the block that took part in the latest barrier.
unsigned barrier_threads();

/// Completes a warp operation for the lanes that have arrived: lanes[i] is what lane i handed in, null where lane i is
/// not in `arrived`.
using Complete = void (*)(void* const* lanes, unsigned arrived);
/// Waits until all lanes in `mask` that have not returned are here. The last one runs `complete` for all of them.
void warp_operation(unsigned mask, const char* what, void* mine, Complete complete, const Place& place);

/// The linear index of the running thread in its block, and its lane.
unsigned thread_in_block();
inline unsigned lane() { return thread_in_block() % 32; }

/// A variable in static shared memory; one object for each declaration in a kernel.
struct SharedSlot {
  const char* name;
  std::size_t bytes;
  std::uint64_t block = 0;  // serial number of the block that the address holds for
  void* address = nullptr;
};
inline HEARTH_EMULATE_THREAD_LOCAL std::uint64_t block_serial = 0;
void declare_shared(SharedSlot& slot, const Place& place);
inline void* shared_variable(SharedSlot& slot, const Place& place = Place::current()) {
  if (slot.block != block_serial) [[unlikely]]
    declare_shared(slot, place);
  return slot.address;
}
/// The host's clock.
std::int64_t nanoseconds_now();
/// The block's dynamic shared memory.
void* dynamic_shared_bytes(const Place& place = Place::current());
/// Whether all of these bytes are shared memory that this block has declared.
bool is_shared(const void* p, std::size_t bytes);

}  // namespace hearth::cuda::emulate
