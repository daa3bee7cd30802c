// SPDX-License-Identifier: Apache-2.0
// For each piece of memory that a kernel has touched: who wrote it last and who has read it since.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

namespace hearth::cuda::emulate {

/// Who, as a number that the race checker gives out (0 for nobody), and where in the program.
struct Stamp {
  std::uint32_t who = 0;
  std::uint32_t site = 0;
};
struct Record {
  Stamp write, read;
};

/// Records in chunks of 64 bytes. The records of a chunk are as fine as the smallest access to it so far, so that
/// neighbours never share one, up to 4 bytes.
class Shadow {
 public:
  Shadow() : slots_(1024) {}

  /// Forgets all.
  void clear();

  /// f(record) for every piece of the bytes until one answers false.
  template <class F>
  void visit(const void* p, std::size_t bytes, F f) {
    auto at = reinterpret_cast<std::uintptr_t>(p);
    const std::uintptr_t end = at + bytes;
    while (at < end) {
      const std::uintptr_t stop = end < (at | 63) + 1 ? end : (at | 63) + 1;
      const Chunk& chunk = chunk_at(at >> 6, fineness(at, stop));
      for (std::uintptr_t i = (at & 63) >> chunk.shift; i <= ((stop - 1) & 63) >> chunk.shift; ++i)
        if (!f(chunk.records[i])) return;
      at = stop;
    }
  }

 private:
  struct Chunk {
    std::uint64_t key = 0;  // address / 64
    std::uint32_t generation = 0;
    unsigned shift = 0;  // records are for 1 << shift bytes
    Record* records = nullptr;
  };
  static constexpr std::size_t page_records = 16384;

  static unsigned fineness(std::uintptr_t begin, std::uintptr_t end) {
    const std::uintptr_t edges = begin | end;
    return (edges & 1) != 0 ? 0 : ((edges & 2) != 0 ? 1 : 2);
  }
  Chunk& chunk_at(std::uint64_t key, unsigned shift);
  Chunk& slot_of(std::uint64_t key);
  void grow();
  void refine(Chunk& chunk, unsigned shift);
  Record* take(std::size_t count);

  std::vector<Chunk> slots_;  // a hash table; the size is a power of two
  std::size_t used_ = 0;
  std::uint32_t generation_ = 1;
  std::vector<std::unique_ptr<Record[]>> pages_;
  std::size_t page_ = 0, taken_ = 0;
};

}  // namespace hearth::cuda::emulate
