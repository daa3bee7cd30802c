// SPDX-License-Identifier: Apache-2.0
// What a piece of work takes from a device's memory and gives back, block by block; and from the same work seen at two
// batch sizes, what it would take at any other. Nothing has to be run, or to fit, at that size.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

#include "core/memory/memory.h"
#include "core/origin.h"

namespace hearth {

/// Writes down the blocks of one device while it is in force as an observer.
class MemoryTrace final : public MemoryObserver {
 public:
  struct Event {
    bool taken;          ///< or given back
    std::int64_t block;  ///< counted from 0 in the order they were taken; negative for blocks of before the trace
    std::int64_t bytes;
    Origin origin;  ///< who asked
  };

  explicit MemoryTrace(Device device) : device_(device) {}
  void allocated(Device device, const void* pointer, std::size_t bytes) override;
  void freed(Device device, const void* pointer, std::size_t bytes) noexcept override;

  /// OutOfMemory if one could not be written down.
  const std::vector<Event>& events() const;

 private:
  Device device_;
  std::mutex mutex_;
  std::vector<Event> events_;
  std::unordered_map<const void*, std::int64_t> numbers_;
  std::int64_t taken_ = 0;
  std::int64_t from_before_ = 0;
  bool complete_ = true;
};

/// A trace as a function of the batch size.
class BatchTrace {
 public:
  /// From traces of the same work at two sizes, small < large (UsageError). Each block's bytes are taken to be an
  /// offset and a part in proportion to the batch. Blocks are matched by who took them, one after the other; one of the
  /// larger trace without a partner counts as proportional to the batch as a whole.
  BatchTrace(const MemoryTrace& small, std::int64_t small_batch, const MemoryTrace& large, std::int64_t large_batch);

  /// Whether the two traces were the same but for sizes.
  bool matched() const { return matched_; }

  struct Peak {
    std::int64_t bytes = 0;  ///< most in use at once, beyond what there was before
    Origin origin;           ///< who took the block that made it so
  };
  Peak peak(std::int64_t batch) const;
  /// Bytes taken before the first block of a backward pass, and still held then: what forward keeps.
  std::int64_t kept(std::int64_t batch) const;
  /// The same by layer; "" for what was taken outside of modules.
  std::map<std::string, std::int64_t> saved_by_layer(std::int64_t batch) const;
  /// Takes and gives back the blocks, of which nothing is touched. Blocks of before the trace are left out.
  void replay(MemoryResource& memory, std::int64_t batch) const;

 private:
  struct Event {
    bool taken;
    std::int64_t block;
    double offset;
    double slope;
    Origin origin;
  };
  static std::int64_t bytes_at(const Event& event, std::int64_t batch);
  std::vector<Event> events_;
  bool matched_ = true;
};

/// A pool like that of a device, over addresses that nothing lies behind: its statistics tell what a real one would ask
/// of the system. Its blocks must not be touched. A CUDA device has `available` bytes; -1 for any number.
std::unique_ptr<MemoryResource> make_imagined_pool(DeviceType device, std::int64_t available = -1);

}  // namespace hearth
