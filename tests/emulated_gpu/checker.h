// SPDX-License-Identifier: Apache-2.0
// Finds accesses of a kernel that CUDA leaves undefined: two threads at the same bytes, one of them writing, with
// nothing that orders them; shared memory read before it is written; memory that is neither the block's nor the
// device's. What orders threads is known exactly (barriers of the block, and __syncwarp within a warp), so the answer
// does not depend on the order in which threads happened to run. A block is ordered behind others only where it was the
// last of them to arrive at a counter (last_to_arrive in kernel.h). Shuffles and votes order nothing, as documented;
// atomics are exempt against atomics. One approximation: lanes of a warp that read the same bytes are remembered
// together, with the latest of their times.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <unordered_map>
#include <vector>

#include "tests/emulated_gpu/access.h"
#include "tests/emulated_gpu/runtime.h"
#include "tests/emulated_gpu/shadow.h"
#include "tests/emulated_gpu/shared_memory.h"

namespace hearth::cuda::emulate {

class Checker {
 public:
  /// `arguments` are what kernels take by reference. Stacks are the threads' own and not looked at.
  void begin_launch(const void* arguments, std::size_t argument_bytes, const void* stacks, std::size_t stack_bytes);
  void begin_block(unsigned threads);
  /// All threads of the block have met.
  void meet();
  /// These lanes of the warp have met.
  void meet_in_warp(unsigned warp, unsigned lanes);

  /// The block has been counted at `counter`; `last`: it completes the count, and from its next barrier on it is
  /// ordered behind what those who were counted did before the barrier that they had passed then.
  void arrive(const void* counter, bool last);

  /// What is wrong with this access, or nothing.
  std::string check(unsigned thread, const void* p, std::size_t bytes, Access access, const void* site,
                    const SharedMemory& shared);

 private:
  // One thread between two meetings, or several of them together.
  struct Party {
    enum class Kind : std::uint8_t { thread, warp, block, grid };
    std::uint32_t block;
    std::uint32_t epoch;  // barriers passed before
    std::uint32_t clock;  // of the lane, or the latest of the lanes
    std::uint32_t lanes;
    std::uint16_t thread;  // of a warp, its first
    Kind kind;
  };
  // Of other blocks: all that they did before they had passed so many barriers is done and seen.
  using Seen = std::unordered_map<std::uint32_t, std::uint32_t>;
  struct WarpClocks {
    std::uint64_t block = 0;
    // seen[i][j]: up to which time of lane j lane i has seen what it did; seen[i][i] is lane i's own time.
    std::array<std::array<std::uint32_t, 32>, 32> seen;
  };
  struct Range {
    std::uintptr_t begin, end;
    bool holds(std::uintptr_t p) const { return p >= begin && p < end; }
  };

  std::uint32_t party_of(unsigned thread);
  std::uint32_t add(const Party& party);
  std::uint32_t time_seen(unsigned thread, unsigned lane) const;
  bool ordered(std::uint32_t before, std::uint32_t now) const;
  std::uint32_t join(std::uint32_t readers, std::uint32_t reader);
  std::string check_records(Shadow& shadow, std::uint32_t who, const void* p, std::size_t bytes, Access access,
                            std::uint32_t site, bool must_be_written);
  bool is_device_memory(std::uintptr_t p, std::size_t bytes, std::string& wrong);
  std::string check_elsewhere(std::uintptr_t p, std::size_t bytes, Access access) const;
  std::string describe(const Stamp& stamp) const;
  void find_program_ranges();

  Shadow device_, shared_;
  std::vector<Party> parties_;
  std::unordered_map<std::uint64_t, std::uint32_t> joined_;
  std::array<std::uint32_t, 1024> party_of_thread_;
  std::array<WarpClocks, 32> clocks_;
  std::uint32_t block_ = 0, epoch_ = 0;
  std::unordered_map<const void*, Seen> arrived_;  // at counters that are not complete
  Seen told_, seen_;                               // by this block: behind the next barrier, and by now
  std::vector<Range> blocks_;                      // of device memory, met in this launch
  Range arguments_{}, stacks_{};
  std::vector<Range> thread_local_, constants_;
};

/// "softmax.cu:40 (softmax_rows), called at softmax.cu:90 (...)" as far as it can be known.
std::string source_of(const void* site);

}  // namespace hearth::cuda::emulate
