// SPDX-License-Identifier: Apache-2.0
#include "train/memory/memory_trace.h"

#include <algorithm>
#include <cmath>
#include <deque>
#include <map>
#include <new>
#include <tuple>

#include "core/error.h"

namespace hearth {

void MemoryTrace::allocated(Device device, const void* pointer, std::size_t bytes) {
  if (device != device_) return;
  const std::lock_guard lock(mutex_);
  numbers_[pointer] = taken_;
  events_.push_back({true, taken_++, static_cast<std::int64_t>(bytes), current_origin()});
}

void MemoryTrace::freed(Device device, const void* pointer, std::size_t bytes) noexcept {
  if (device != device_) return;
  const std::lock_guard lock(mutex_);
  const auto found = numbers_.find(pointer);
  const std::int64_t block = found != numbers_.end() ? found->second : -++from_before_;
  if (found != numbers_.end()) numbers_.erase(found);
  try {
    events_.push_back({false, block, static_cast<std::int64_t>(bytes), current_origin()});
  } catch (const std::bad_alloc&) {
    complete_ = false;
  }
}

const std::vector<MemoryTrace::Event>& MemoryTrace::events() const {
  HEARTH_CHECK(OutOfMemory, complete_, "memory trace: no memory was left to write down ", events_.size(), " events");
  return events_;
}

namespace {

std::string key_of(const MemoryTrace::Event& event) { return join_text(event.taken, event.block < 0, event.origin); }

bool same_but_for_sizes(const std::vector<MemoryTrace::Event>& a, const std::vector<MemoryTrace::Event>& b) {
  bool same = a.size() == b.size();
  for (std::size_t i = 0; same && i < a.size(); ++i)
    same = a[i].taken == b[i].taken && a[i].block == b[i].block && a[i].origin == b[i].origin;
  return same;
}

}  // namespace

BatchTrace::BatchTrace(const MemoryTrace& small, std::int64_t small_batch, const MemoryTrace& large,
                       std::int64_t large_batch)
    : matched_(same_but_for_sizes(small.events(), large.events())) {
  HEARTH_CHECK(UsageError, 0 < small_batch && small_batch < large_batch, "memory traces: at batches ", small_batch,
               " and ", large_batch, "; the first must be the smaller");
  const auto distance = static_cast<double>(large_batch - small_batch);
  std::map<std::string, std::deque<std::int64_t>> partners;
  if (!matched_)
    for (const MemoryTrace::Event& event : small.events()) partners[key_of(event)].push_back(event.bytes);
  std::unordered_map<std::int64_t, std::pair<double, double>> laws;  // of the blocks taken: offset and slope
  for (std::size_t i = 0; i < large.events().size(); ++i) {
    const MemoryTrace::Event& event = large.events()[i];
    const auto bytes = static_cast<double>(event.bytes);
    Event law{event.taken, event.block, 0, bytes / static_cast<double>(large_batch), event.origin};
    std::deque<std::int64_t>* const waiting = matched_ ? nullptr : &partners[key_of(event)];
    if (matched_ || !waiting->empty()) {
      const auto partner = static_cast<double>(matched_ ? small.events()[i].bytes : waiting->front());
      if (!matched_) waiting->pop_front();
      law.slope = (bytes - partner) / distance;
      law.offset = bytes - law.slope * static_cast<double>(large_batch);
    }
    // A block goes back as it was taken.
    if (event.taken) laws[event.block] = {law.offset, law.slope};
    if (const auto found = laws.find(event.block); found != laws.end()) std::tie(law.offset, law.slope) = found->second;
    events_.push_back(law);
  }
}

std::int64_t BatchTrace::bytes_at(const Event& event, std::int64_t batch) {
  return static_cast<std::int64_t>(std::ceil(std::max(0.0, event.offset + event.slope * static_cast<double>(batch))));
}

BatchTrace::Peak BatchTrace::peak(std::int64_t batch) const {
  Peak peak;
  std::int64_t now = 0;
  for (const Event& event : events_) {
    now += (event.taken ? 1 : -1) * bytes_at(event, batch);
    if (now > peak.bytes) peak = {now, event.origin};
  }
  return peak;
}

std::map<std::string, std::int64_t> BatchTrace::saved_by_layer(std::int64_t batch) const {
  std::unordered_map<std::int64_t, const Event*> held;
  for (const Event& event : events_) {
    if (event.origin.backward) break;
    if (event.taken)
      held[event.block] = &event;
    else
      held.erase(event.block);
  }
  std::map<std::string, std::int64_t> bytes;
  for (const auto& [block, event] : held)
    bytes[event->origin.layer == nullptr ? "" : event->origin.layer] += bytes_at(*event, batch);
  return bytes;
}

std::int64_t BatchTrace::kept(std::int64_t batch) const {
  std::int64_t sum = 0;
  for (const auto& [layer, bytes] : saved_by_layer(batch)) sum += bytes;
  return sum;
}

void BatchTrace::replay(MemoryResource& memory, std::int64_t batch) const {
  std::unordered_map<std::int64_t, std::pair<void*, std::size_t>> held;
  const auto give_back = [&](std::int64_t block) {
    const auto found = held.find(block);
    if (found == held.end()) return;
    memory.deallocate(found->second.first, found->second.second);
    held.erase(found);
  };
  try {
    for (const Event& event : events_) {
      const auto bytes = static_cast<std::size_t>(bytes_at(event, batch));
      if (event.taken)
        held[event.block] = {memory.allocate(bytes), bytes};
      else
        give_back(event.block);
    }
  } catch (...) {
    while (!held.empty()) give_back(held.begin()->first);
    throw;
  }
  while (!held.empty()) give_back(held.begin()->first);
}

namespace {

class ImaginedRegions final : public RegionSource {
 public:
  ImaginedRegions(DeviceType device, std::int64_t available) : device_(device), available_(available) {}

  std::byte* map(std::size_t& bytes) override {
    if (device_ == DeviceType::cpu) {
      bytes = (std::max(bytes, min_cpu_region) + step - 1) / step * step;
    } else {
      const std::size_t comfortable = std::max(bytes, min_cuda_region - pool_granule);
      if (fits(comfortable))
        bytes = comfortable;
      else if (!fits(bytes))
        return nullptr;
    }
    std::byte* const base = reinterpret_cast<std::byte*>(next_);
    next_ += (bytes / step + 2) * step;
    taken_[base] = bytes;
    mapped_ += static_cast<std::int64_t>(bytes);
    return base;
  }
  void unmap(std::byte* base) noexcept override {
    const auto found = taken_.find(base);
    mapped_ -= static_cast<std::int64_t>(found->second);
    taken_.erase(found);
  }

 private:
  static constexpr std::size_t step = std::size_t{2} << 20;
  bool fits(std::size_t bytes) const {
    return available_ < 0 || static_cast<std::int64_t>(bytes) <= available_ - mapped_;
  }

  DeviceType device_;
  std::int64_t available_;
  std::int64_t mapped_ = 0;
  std::map<std::byte*, std::size_t> taken_;
  std::uintptr_t next_ = step;
};

}  // namespace

std::unique_ptr<MemoryResource> make_imagined_pool(DeviceType device, std::int64_t available) {
  return make_pool_memory(std::make_unique<ImaginedRegions>(device, available));
}

}  // namespace hearth
