// SPDX-License-Identifier: Apache-2.0
// Memory resources, stacked as adaptors: pool <- limit <- statistics <- poison. All are thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "core/device.h"

namespace hearth {

/// Every block of a pool is a multiple of this many bytes.
inline constexpr std::size_t pool_granule = 256;
/// Pools ask for regions of at least this size, so that a model's first step asks the system a few times only.
inline constexpr std::size_t min_cpu_region = std::size_t{64} << 20;
inline constexpr std::size_t min_cuda_region = std::size_t{32} << 20;

struct MemoryStatistics {
  std::int64_t in_use = 0;        ///< bytes handed out now
  std::int64_t peak = 0;          ///< most bytes handed out at once since the last reset_peak
  std::int64_t reserved = 0;      ///< bytes held from the system, in use or cached
  std::int64_t allocations = 0;   ///< allocate calls so far
  std::int64_t system_calls = 0;  ///< times the system was asked for memory
  std::int64_t limit = -1;        ///< most bytes that may be in use; -1 for none but the system's
};

/// Hands out memory. Alignment is 64 bytes or more; contents are not zeroed. allocate(0) gives a unique non-null
/// pointer.
class HEARTH_API MemoryResource {
 public:
  virtual ~MemoryResource() = default;
  /// Throws OutOfMemory with bytes asked, in use and cached.
  virtual void* allocate(std::size_t bytes) = 0;
  /// `bytes` as in the allocate call.
  virtual void deallocate(void* pointer, std::size_t bytes) noexcept = 0;
  virtual MemoryStatistics statistics() const = 0;
  /// Makes the present use the peak.
  virtual void reset_peak() = 0;
};

/// Straight from the system, page faults and all: for the bottom of a stack in tests.
HEARTH_API std::unique_ptr<MemoryResource> make_system_memory();

/// Where a pool gets its regions from.
class HEARTH_API RegionSource {
 public:
  virtual ~RegionSource() = default;
  /// At least `bytes`, aligned to 256 bytes, never adjacent to another region; null if there is no more. The size given
  /// is returned in `bytes`.
  virtual std::byte* map(std::size_t& bytes) = 0;
  virtual void unmap(std::byte* base) noexcept = 0;
};

/// Best-fit pool over large regions; freed blocks are merged and kept for reuse, so a training step asks for nothing
/// after the first. Before it refuses a request, regions without a used block are given back to the source.
HEARTH_API std::unique_ptr<MemoryResource> make_pool_memory(std::unique_ptr<RegionSource> source);
/// The same over regions of the system, advised to use huge pages.
HEARTH_API std::unique_ptr<MemoryResource> make_pool_memory();
/// The same over blocks of another resource, none given back: memory kept apart, but counted and limited with the rest.
HEARTH_API std::unique_ptr<MemoryResource> make_pool_memory(MemoryResource& below, std::size_t min_region);
/// Refuses to have more than `bytes` in use, or to serve the allocation numbered `fail_at` (counted from 1; 0 = never).
HEARTH_API std::unique_ptr<MemoryResource> make_limited_memory(MemoryResource& below, std::int64_t bytes,
                                                               std::int64_t fail_at = 0);
/// Counts what passes through.
HEARTH_API std::unique_ptr<MemoryResource> make_counting_memory(MemoryResource& below);
/// Fills fresh memory with signalling bytes (0xFF: NaN in every float type) and checks canaries around each
/// block when it is freed; a damaged canary ends the process, because memory is already corrupt.
HEARTH_API std::unique_ptr<MemoryResource> make_poisoned_memory(MemoryResource& below);

/// Tells the observer in force of each block, and adds to OutOfMemory who asked and the largest tensors of the device.
HEARTH_API std::unique_ptr<MemoryResource> make_reporting_memory(MemoryResource& below, Device device);

/// The resource of a device: the pool, under statistics; HEARTH_MEMORY=system|poison puts another stack there (on a
/// CUDA device both mean: each block from the driver), HEARTH_MEMORY_LIMIT_MB=n adds a limit of n * 2^20 bytes.
/// Where a control group limits the process, as in a container, the CPU's resource is limited to what was left of it at
/// the first call.
HEARTH_API MemoryResource& memory_of(Device device);

/// Bytes that this process could have on a device: what its pool holds, used or cached, and what is free there. On the
/// CPU that is what the system could give without swapping and its control groups allow (core/cpu/free_memory.h).
HEARTH_API std::int64_t available_memory(Device device);

/// Hears of every block that the devices' own resources hand out and take back, on the thread that asks.
class HEARTH_API MemoryObserver {
 public:
  virtual ~MemoryObserver() = default;
  virtual void allocated(Device device, const void* pointer, std::size_t bytes) = 0;
  virtual void freed(Device device, const void* pointer, std::size_t bytes) noexcept = 0;
};

/// Puts an observer in force for the life of this object; one at a time in a process.
class HEARTH_API MemoryObserverScope {
 public:
  explicit MemoryObserverScope(MemoryObserver& observer);
  ~MemoryObserverScope();
  MemoryObserverScope(const MemoryObserverScope&) = delete;
  MemoryObserverScope& operator=(const MemoryObserverScope&) = delete;

 private:
  MemoryObserver* previous_;
};

/// Replaces a device's resource on the calling thread for the life of this object. Storages remember where they came
/// from.
class HEARTH_API DeviceMemoryScope {
 public:
  DeviceMemoryScope(Device device, MemoryResource& resource);
  ~DeviceMemoryScope();
  DeviceMemoryScope(const DeviceMemoryScope&) = delete;
  DeviceMemoryScope& operator=(const DeviceMemoryScope&) = delete;

 private:
  Device previous_device_;
  MemoryResource* previous_;
};

/// Replaces the CPU's resource for the life of this object (tests). Storages remember where they came from.
class HEARTH_API MemoryScope {
 public:
  explicit MemoryScope(MemoryResource& resource);
  ~MemoryScope();
  MemoryScope(const MemoryScope&) = delete;
  MemoryScope& operator=(const MemoryScope&) = delete;

 private:
  MemoryResource* previous_;
};

}  // namespace hearth
