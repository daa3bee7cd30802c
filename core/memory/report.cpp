// SPDX-License-Identifier: Apache-2.0
// The top of each device's stack: observers hear of every block, and a request that cannot be met is reported with who
// asked and what holds the memory.
#include <atomic>
#include <string>
#include <utility>

#include "core/build.h"
#include "core/cpu/free_memory.h"
#include "core/cuda/memory.h"
#include "core/error.h"
#include "core/memory/memory.h"
#include "core/origin.h"
#include "core/tensor.h"
#include "core/text_stream.h"

namespace hearth {
namespace {

constexpr std::size_t listed_tensors = 5;

std::atomic<MemoryObserver*> observer_in_force{nullptr};

std::string report(const OutOfMemory& error, Device device) {
  TextStream out;
  out << current_origin() << " on " << device << ": " << error.what();
  const std::vector<StorageRecord> largest = largest_storages(device, listed_tensors);
  if (largest.empty()) return out.str();
  out << "\nthe largest tensors on " << device << ":";
  for (const StorageRecord& storage : largest)
    out << "\n  " << storage.bytes << " bytes, " << storage.dtype << " " << storage.shape << ", made by "
        << storage.origin;
  return out.str();
}

class ReportingMemory final : public MemoryResource {
 public:
  ReportingMemory(MemoryResource& below, Device device) : below_(below), device_(device) {}

  void* allocate(std::size_t bytes) override {
    void* const pointer = allocate_below(bytes);
    if (MemoryObserver* const observer = observer_in_force.load(std::memory_order_acquire))
      observer->allocated(device_, pointer, bytes);
    return pointer;
  }
  void deallocate(void* pointer, std::size_t bytes) noexcept override {
    if (MemoryObserver* const observer = observer_in_force.load(std::memory_order_acquire))
      observer->freed(device_, pointer, bytes);
    below_.deallocate(pointer, bytes);
  }
  MemoryStatistics statistics() const override { return below_.statistics(); }
  void reset_peak() override { below_.reset_peak(); }

 private:
  void* allocate_below(std::size_t bytes) {
    try {
      return below_.allocate(bytes);
    } catch (const OutOfMemory& error) {
      throw OutOfMemory(report(error, device_));
    }
  }

  MemoryResource& below_;
  Device device_;
};

}  // namespace

std::unique_ptr<MemoryResource> make_reporting_memory(MemoryResource& below, Device device) {
  return std::make_unique<ReportingMemory>(below, device);
}

MemoryObserverScope::MemoryObserverScope(MemoryObserver& observer) : previous_(observer_in_force.exchange(&observer)) {}
MemoryObserverScope::~MemoryObserverScope() { observer_in_force.store(previous_); }

std::int64_t available_memory(Device device) {
#if HEARTH_HAS_CUDA
  if (device.is_cuda()) return cuda::free_memory(device) + memory_of(device).statistics().reserved;
#endif
  HEARTH_CHECK(DeviceError, device.is_cpu(), "memory of ", device, ": this build of Hearth has the CPU backend only");
  // What the pool has mapped and never touched counts on both sides; it maps little more than it is asked for.
  return cpu::free_memory() + memory_of(device).statistics().reserved;
}

}  // namespace hearth
