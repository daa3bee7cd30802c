// SPDX-License-Identifier: Apache-2.0
// The memory resources of the devices: which adaptors the environment asks for.
#include <algorithm>
#include <atomic>
#include <charconv>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <map>
#include <mutex>
#include <optional>
#include <string_view>
#include <utility>

#include "core/build.h"
#include "core/cpu/free_memory.h"
#include "core/cuda/memory.h"
#include "core/error.h"
#include "core/memory/lasting_memory.h"
#include "core/memory/memory.h"

namespace hearth {
namespace {

/// The bytes of HEARTH_MEMORY_LIMIT_MB.
std::int64_t limit_asked(const char* text) {
  constexpr std::int64_t most = std::numeric_limits<std::int64_t>::max() >> 20;
  std::int64_t megabytes = 0;
  const char* const end = text + std::strlen(text);
  const auto [stop, error] = std::from_chars(text, end, megabytes);
  HEARTH_CHECK(ConfigError, error == std::errc{} && stop == end && megabytes >= 1 && megabytes <= most,
               "HEARTH_MEMORY_LIMIT_MB is \"", text, "\"; it must be a number from 1 to ", most,
               ", of 2^20 bytes each and without a unit");
  return megabytes << 20;
}

/// Of the environment; on the CPU no more than the process's control groups have left, which would kill it.
std::optional<std::int64_t> limit_of(Device device) {
  const char* const text = std::getenv("HEARTH_MEMORY_LIMIT_MB");
  const auto asked = text != nullptr ? std::optional(limit_asked(text)) : std::nullopt;
  const auto group = device.is_cpu() ? cpu::group_memory() : std::nullopt;
  return asked && group ? std::min(asked, group) : asked ? asked : group;
}

/// The stack of a device, as the environment asks.
struct Stack {
  std::unique_ptr<MemoryResource> bottom;
  std::unique_ptr<MemoryResource> limit;
  std::unique_ptr<MemoryResource> counting;
  std::unique_ptr<MemoryResource> poison;
  std::unique_ptr<MemoryResource> reporting;
  MemoryResource* top;

  explicit Stack(Device device) {
    const char* kind = std::getenv("HEARTH_MEMORY");
    const std::string_view name = kind == nullptr ? "pool" : kind;
    HEARTH_CHECK(ConfigError, name == "pool" || name == "system" || name == "poison", "HEARTH_MEMORY=", name,
                 " is not known; use pool, system or poison");
    bottom = make_bottom(device, name == "pool");
    top = bottom.get();
    if (const auto bytes = limit_of(device)) {
      limit = make_limited_memory(*top, *bytes);
      top = limit.get();
    }
    counting = make_counting_memory(*top);
    top = counting.get();
    if (name == "poison" && device.is_cpu()) {
      poison = make_poisoned_memory(*top);
      top = poison.get();
    }
    reporting = make_reporting_memory(*top, device);
    top = reporting.get();
  }

  static std::unique_ptr<MemoryResource> make_bottom(Device device, bool pool) {
#if HEARTH_HAS_CUDA
    if (device.is_cuda()) return cuda::make_memory(device, pool);
#endif
    HEARTH_CHECK(DeviceError, device.is_cpu(), "memory of ", device, ": this build of Hearth has the CPU backend only");
    return pool ? make_pool_memory() : make_system_memory();
  }
};

// Leaked on purpose: tensors in static objects may outlive everything else.
std::atomic<MemoryResource*>& cpu_memory() {
  static const Stack* const stack = new Stack(Device{});  // kept, so that leak checkers still see it
  static std::atomic<MemoryResource*> resource{stack->top};
  return resource;
}

// What a DeviceMemoryScope of this thread put in place.
thread_local Device replaced_device;
thread_local MemoryResource* replacement = nullptr;

}  // namespace

MemoryResource& memory_of(Device device) {
  if (replacement != nullptr && device == replaced_device) return *replacement;
  if (device.is_cpu()) return *cpu_memory().load(std::memory_order_relaxed);
  static std::mutex mutex;
  static auto* const stacks = new std::map<int, Stack>;  // leaked, like the CPU's
  const std::lock_guard lock(mutex);
  return *stacks->try_emplace(device.index, device).first->second.top;
}

DeviceMemoryScope::DeviceMemoryScope(Device device, MemoryResource& resource)
    : previous_device_(std::exchange(replaced_device, device)), previous_(std::exchange(replacement, &resource)) {}
DeviceMemoryScope::~DeviceMemoryScope() {
  replaced_device = previous_device_;
  replacement = previous_;
}

LastingMemoryScope::LastingMemoryScope() : previous_(std::exchange(replacement, nullptr)) {}
LastingMemoryScope::~LastingMemoryScope() { replacement = previous_; }

MemoryScope::MemoryScope(MemoryResource& resource) : previous_(cpu_memory().exchange(&resource)) {}
MemoryScope::~MemoryScope() { cpu_memory().store(previous_); }

}  // namespace hearth
