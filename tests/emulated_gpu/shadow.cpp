// SPDX-License-Identifier: Apache-2.0
// The table of chunks, and the pages that their records come from.
#include "tests/emulated_gpu/shadow.h"

#include <algorithm>
#include <utility>

namespace hearth::cuda::emulate {

void Shadow::clear() {
  ++generation_;
  used_ = 0;
  page_ = 0;
  taken_ = 0;
}

Shadow::Chunk& Shadow::slot_of(std::uint64_t key) {
  const std::size_t mask = slots_.size() - 1;
  std::size_t i = (key * 0x9e3779b97f4a7c15u >> 20) & mask;
  while (slots_[i].generation == generation_ && slots_[i].key != key) i = (i + 1) & mask;
  return slots_[i];
}

Shadow::Chunk& Shadow::chunk_at(std::uint64_t key, unsigned shift) {
  Chunk* chunk = &slot_of(key);
  if (chunk->generation != generation_) {
    if (2 * ++used_ > slots_.size()) {
      grow();
      chunk = &slot_of(key);
    }
    *chunk = {key, generation_, shift, take(std::size_t{64} >> shift)};
  } else if (shift < chunk->shift) {
    refine(*chunk, shift);
  }
  return *chunk;
}

void Shadow::grow() {
  std::vector<Chunk> old(slots_.size() * 2);
  std::swap(old, slots_);
  for (const Chunk& chunk : old)
    if (chunk.generation == generation_) slot_of(chunk.key) = chunk;
}

void Shadow::refine(Chunk& chunk, unsigned shift) {
  Record* const finer = take(std::size_t{64} >> shift);
  for (std::size_t i = 0; i < std::size_t{64} >> shift; ++i) finer[i] = chunk.records[i >> (chunk.shift - shift)];
  chunk.records = finer;
  chunk.shift = shift;
}

Record* Shadow::take(std::size_t count) {
  if (taken_ + count > page_records) {
    ++page_;
    taken_ = 0;
  }
  if (page_ == pages_.size()) pages_.emplace_back(new Record[page_records]);
  Record* const records = pages_[page_].get() + taken_;
  taken_ += count;
  std::fill(records, records + count, Record{});
  return records;
}

}  // namespace hearth::cuda::emulate
