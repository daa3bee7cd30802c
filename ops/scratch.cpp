// SPDX-License-Identifier: Apache-2.0
// The scratch stack: a list of blocks filled from the bottom. When the last frame ends with more than one block
// in the list they are replaced by a single one as large as all of them, so that a steady load settles on one block.
#include "ops/scratch.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstdlib>
#include <vector>

#include "core/error.h"
#include "core/thread_object.h"

namespace hearth::cpu {
namespace {

constexpr std::size_t alignment = 64;
constexpr std::size_t huge_page = std::size_t{2} << 20;

struct Block {
  std::byte* data;
  std::size_t bytes;
};

struct Stack {
  std::vector<Block> blocks;
  std::size_t block = 0;  // index of the block being filled
  std::size_t used = 0;   // bytes used of it
  std::size_t held = 0;
  int frames = 0;

  ~Stack() { free_all(); }

  void free_all() {
    for (const Block& b : blocks) std::free(b.data);
    blocks.clear();
    block = used = held = 0;
  }

  void add_block(std::size_t bytes) {
    const std::size_t size = std::max(huge_page, (bytes + huge_page - 1) / huge_page * huge_page);
    auto* data = size < bytes ? nullptr : static_cast<std::byte*>(std::aligned_alloc(huge_page, size));
    HEARTH_CHECK(OutOfMemory, data != nullptr, "scratch memory: ", bytes, " bytes asked, ", held,
                 " held; use a smaller batch");
#ifdef MADV_HUGEPAGE
    madvise(data, size, MADV_HUGEPAGE);
#endif
    blocks.push_back({data, size});
    held += size;
  }
};

Stack& stack() { return hearth::detail::thread_object<Stack>(); }

}  // namespace

Scratch::Scratch() {
  Stack& s = stack();
  if (s.frames == 0 && s.blocks.size() > 1) {
    const std::size_t total = s.held;
    s.free_all();
    s.add_block(total);
  }
  ++s.frames;
  block_ = s.block;
  used_ = s.used;
}

Scratch::~Scratch() {
  Stack& s = stack();
  s.block = block_;
  s.used = used_;
  --s.frames;
}

void* Scratch::take_bytes(std::size_t bytes) {
  HEARTH_CHECK(OutOfMemory, bytes < (std::size_t{1} << 62), "scratch memory: ", bytes, " bytes asked");
  Stack& s = stack();
  const std::size_t rounded = (std::max<std::size_t>(bytes, 1) + alignment - 1) / alignment * alignment;
  while (s.block < s.blocks.size() && s.blocks[s.block].bytes - s.used < rounded) {
    ++s.block;
    s.used = 0;
  }
  if (s.block == s.blocks.size()) s.add_block(rounded);
  void* result = s.blocks[s.block].data + s.used;
  s.used += rounded;
  return result;
}

std::size_t Scratch::held_bytes() { return stack().held; }

void Scratch::release() {
  Stack& s = stack();
  if (s.frames == 0) s.free_all();
}

}  // namespace hearth::cpu
