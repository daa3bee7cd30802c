// SPDX-License-Identifier: Apache-2.0
// Memory of the emulated devices: every block lies between pages that nothing may touch, starts as all ones
// (NaN in every floating-point type; above 1 GiB as zeros, whose pages cost nothing until they are touched), and is
// inaccessible once freed; its addresses are not given again.
#pragma once

#include <deque>
#include <map>
#include <vector>

#include "tests/emulated_gpu/runtime.h"

namespace hearth::cuda::emulate {

class Memory {
 public:
  /// A block, still inaccessible. Null begin if the host has no address space left.
  MemoryBlock reserve(MemoryKind kind, int device, std::size_t bytes);
  /// Makes it accessible and fills it.
  void open(const void* begin);
  /// A host range that the caller owns, forced by registration.
  MemoryBlock register_module(void* begin, std::size_t bytes, int device);
  /// Ends the block's life. Says what was written into the red zones around it, or nothing.
  std::string close(const void* begin);

  /// The live block that holds the address, or null.
  const MemoryBlock* find(const void* address) const;
  /// The live block that starts there and is not registered, or null.
  const MemoryBlock* find_start(const void* begin) const;
  bool is_adopted(const void* begin) const;
  /// Whether the address lies where blocks are made, so that it is no host memory, live or not.
  bool in_ranges(const void* address) const;
  bool alive(std::uint64_t serial, const void* begin) const;
  std::string describe(const void* address) const;

  std::size_t in_use(int device) const;
  /// In the mode where the host may not touch device memory: lets work on the devices touch it, and takes that back.
  void set_host_access(HostAccess access);
  void let_in(bool work_runs);
  /// Whether fresh device memory is left as it comes, untouched, instead of NaN.
  void set_idle(bool idle) { idle_ = idle; }

 private:
  struct Span {
    MemoryBlock block;
    std::byte* mapped = nullptr;  ///< whole pages, without the guard; null if registered
    std::size_t mapped_bytes = 0;
    bool opened = false;
  };
  struct Range {
    std::byte* begin = nullptr;
    std::size_t bytes = 0;
    std::size_t used = 0;
    int live = 0;
  };

  std::byte* take_pages(std::size_t bytes);
  void drop_pages(const Span& span);
  void protect(const Span& span, bool accessible) const;
  void mark_red_zones(const Span& span) const;
  std::string inspect_red_zones(const Span& span) const;
  const Span* span_at(const void* address) const;
  const Span* span_starting(const void* begin) const;

  std::map<const std::byte*, Span> spans_;  ///< by start
  std::deque<MemoryBlock> freed_;           ///< the latest, for messages
  std::vector<Range> ranges_;
  std::map<int, std::size_t> in_use_;
  std::uint64_t serial_ = 0;
  HostAccess host_access_ = HostAccess::allowed;
  bool work_runs_ = false;
  bool idle_ = false;
};

}  // namespace hearth::cuda::emulate
