// SPDX-License-Identifier: Apache-2.0
// The engine's doors: what launches and kernels call, led to the block that runs.
#include "tests/emulated_gpu/engine.h"

#include <chrono>
#include <cstdlib>
#include <mutex>

#include "core/error.h"
#include "tests/emulated_gpu/block.h"

namespace hearth::cuda::emulate {
namespace {

struct OrderSetting {
  std::mutex mutex;
  Order order;
  std::uint64_t at_ends = 0;

  OrderSetting() {
    if (const char* text = std::getenv("HEARTH_EMULATE_ORDER")) order = order_named(text);
  }
};
OrderSetting& order_setting() {
  static OrderSetting setting;
  return setting;
}

Block& running_block() {
  HEARTH_CHECK(InternalError, running != nullptr, "a function for kernels was called on the host");
  return *running;
}

std::string text_of(const dim3& size) { return join_text("(", size.x, ", ", size.y, ", ", size.z, ")"); }

}  // namespace

void set_order(std::string_view text) {
  const Order parsed = order_named(text);
  const std::scoped_lock lock(order_setting().mutex);
  order_setting().order = parsed;
}

std::string order() {
  const std::scoped_lock lock(order_setting().mutex);
  return name_of(order_setting().order);
}

void set_blocks_at_ends(std::uint64_t count) {
  const std::scoped_lock lock(order_setting().mutex);
  order_setting().at_ends = count;
}

void check_launch(const Launch& launch) {
  const dim3 &grid = launch.grid, &block = launch.block;
  const std::uint64_t threads = std::uint64_t{block.x} * block.y * block.z;
  HEARTH_CHECK(InternalError, threads > 0 && grid.x > 0 && grid.y > 0 && grid.z > 0, "kernel ", launch.name,
               ": launch of an empty grid ", text_of(grid), " or block ", text_of(block));
  HEARTH_CHECK(InternalError,
               block.x <= max_threads && block.y <= max_threads && block.z <= 64 && threads <= max_threads, "kernel ",
               launch.name, ": block ", text_of(block), "; the device takes (1024, 1024, 64) and 1024 threads in all");
  HEARTH_CHECK(InternalError, grid.x <= 0x7fffffffu && grid.y <= 65535 && grid.z <= 65535, "kernel ", launch.name,
               ": grid ", text_of(grid), "; the device takes (2147483647, 65535, 65535)");
  HEARTH_CHECK(InternalError, launch.shared_bytes <= shared_limit, "kernel ", launch.name, ": ", launch.shared_bytes,
               " bytes of dynamic shared memory a block; the device has ", shared_limit);
  const std::size_t allowed = launch.shared_asked > 0 ? launch.shared_asked : static_shared_limit;
  HEARTH_CHECK(InternalError, launch.shared_bytes <= allowed, "kernel ", launch.name, ": ", launch.shared_bytes,
               " bytes of dynamic shared memory a block; it was allowed ", allowed, " (cudaFuncSetAttribute)");
}

void run_launch(const Launch& launch, const Call& call) {
  HEARTH_CHECK(InternalError, running == nullptr, "kernel ", launch.name,
               " was launched by a kernel; only the host may launch");
  check_launch(launch);
  const std::uint64_t rows = std::uint64_t{launch.grid.y} * launch.grid.z, max_blocks = 0x7fffffff;
  HEARTH_CHECK(InternalError, launch.grid.x <= max_blocks / rows, "kernel ", launch.name, ": grid ",
               text_of(launch.grid), "; the emulated GPU runs at most ", max_blocks, " blocks a launch");
  Order order;
  std::uint64_t at_ends = 0;
  {
    const std::scoped_lock lock(order_setting().mutex);
    order = order_setting().order;
    at_ends = order_setting().at_ends;
  }
  Block::of_host_thread().run_grid(launch, order, at_ends, call);
}

void fault(const std::string& message, const Place& place) {
  const Unwatched unwatched;
  running_block().fault(message, place);
}

unsigned block_barrier(bool vote, const Place& place) {
  const Unwatched unwatched;
  return running_block().barrier(vote, place);
}

unsigned barrier_threads() { return running_block().barrier_threads(); }

void warp_operation(unsigned mask, const char* what, void* mine, Complete complete, const Place& place) {
  const Unwatched unwatched;
  running_block().warp_operation(mask, what, mine, complete, place);
}

unsigned thread_in_block() { return running_block().thread(); }

void declare_shared(SharedSlot& slot, const Place& place) {
  const Unwatched unwatched;
  Block& block = running_block();
  void* const address = block.shared().declare(slot);
  if (address == nullptr)
    block.fault(
        join_text("shared variable ", slot.name, " of ", slot.bytes, " bytes does not fit: static shared memory has ",
                  static_shared_limit, " bytes, static and dynamic together ", shared_limit, ", or ",
                  static_shared_limit, " where cudaFuncSetAttribute did not ask for the dynamic part"),
        place);
  slot.address = address;
  slot.block = block_serial;
}

std::int64_t nanoseconds_now() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

void* dynamic_shared_bytes(const Place& place) {
  const Unwatched unwatched;
  Block& block = running_block();
  void* const address = block.shared().dynamic();
  if (address == nullptr) block.fault("dynamic shared memory is used, but the launch gave none", place);
  return address;
}

#if HEARTH_EMULATE_CHECK
void note_access(const void* p, std::size_t bytes, Access access, const void* site) {
  const Unwatched unwatched;
  running_block().check_access(p, bytes, access, site);
}
void note_arrival(const void* counter, bool last) {
  const Unwatched unwatched;
  running_block().checker().arrive(counter, last);
}
#endif

bool is_shared(const void* p, std::size_t bytes) { return running_block().shared().holds(p, bytes); }

}  // namespace hearth::cuda::emulate
