// SPDX-License-Identifier: Apache-2.0
// Shared memory as an arena with zones between variables. With the address sanitizer the zones are poisoned and an
// overrun stops at the faulty line; without it their content is compared when the block ends.
#include "tests/emulated_gpu/shared_memory.h"

#include <algorithm>
#include <cstring>

#include "core/error.h"
#include "tests/emulated_gpu/sanitizer.h"

namespace hearth::cuda::emulate {
namespace {

constexpr std::size_t zone = 64;
constexpr int zone_byte = 0xA5;
constexpr std::size_t max_variables = 256;
constexpr std::size_t arena_bytes = shared_limit + static_shared_limit + (max_variables + 2) * (zone + 16);

}  // namespace

SharedMemory::SharedMemory() : arena_(new std::byte[arena_bytes + 16]) {}

SharedMemory::~SharedMemory() { unpoison(arena_.get(), arena_bytes + 16); }

void SharedMemory::begin_block(std::size_t dynamic_bytes, std::size_t most) {
  variables_.clear();
  end_ = 0;
  static_bytes_ = 0;
  dynamic_bytes_ = dynamic_bytes;
  max_ = most;
  dynamic_ = nullptr;
  poison(arena_.get(), arena_bytes);
}

std::byte* SharedMemory::add(const char* name, std::size_t bytes) {
  // CUDA promises 16 bytes of alignment and no more, so neither do these addresses give more: they are odd multiples.
  const auto base = reinterpret_cast<std::uintptr_t>(arena_.get());
  std::uintptr_t begin = (base + end_ + zone + 15) & ~std::uintptr_t{15};
  if (begin % 32 == 0) begin += 16;
  const std::size_t offset = begin - base;
  std::byte* const memory = arena_.get() + offset;
  unpoison(arena_.get() + end_, offset - end_ + bytes + zone);
  std::memset(arena_.get() + end_, zone_byte, offset - end_);
  std::memset(memory, 0xff, bytes);
  std::memset(memory + bytes, zone_byte, zone);
  // The sanitizer's marks are for 8 bytes at a time, those before a variable must end where it begins.
  poison(arena_.get() + end_, offset - end_);
  poison(memory + bytes, zone);
  end_ = offset + bytes;
  variables_.push_back({name, offset, bytes});
  return memory;
}

void* SharedMemory::declare(const SharedSlot& slot) {
  static_bytes_ += slot.bytes;
  if (static_bytes_ > static_shared_limit || static_bytes_ + dynamic_bytes_ > max_) return nullptr;
  if (variables_.size() >= max_variables) return nullptr;
  return add(slot.name, slot.bytes);
}

void* SharedMemory::dynamic() {
  if (dynamic_ == nullptr && dynamic_bytes_ > 0) dynamic_ = add("dynamic shared memory", dynamic_bytes_);
  return dynamic_;
}

bool SharedMemory::in_arena(const void* p) const {
  return reinterpret_cast<std::uintptr_t>(p) - reinterpret_cast<std::uintptr_t>(arena_.get()) < arena_bytes;
}

bool SharedMemory::holds(const void* p, std::size_t bytes) const {
  if (!in_arena(p)) return false;
  const std::size_t offset = reinterpret_cast<std::uintptr_t>(p) - reinterpret_cast<std::uintptr_t>(arena_.get());
  return std::any_of(variables_.begin(), variables_.end(),
                     [&](const Variable& v) { return offset >= v.begin && offset + bytes <= v.begin + v.bytes; });
}

std::string SharedMemory::overrun() const {
#if !HEARTH_HAS_ASAN
  std::size_t end = 0;
  for (std::size_t i = 0; i <= variables_.size(); ++i) {
    const bool last = i == variables_.size();
    const std::size_t begin = last ? end_ + zone : variables_[i].begin;
    if (variables_.empty()) break;
    for (std::size_t at = end; at < begin; ++at) {
      if (arena_[at] == std::byte{zone_byte}) continue;
      if (i == 0)
        return join_text("memory ", begin - at, " bytes before shared variable ", variables_[0].name, " was written");
      const Variable& before = variables_[i - 1];
      return join_text("memory ", at - before.begin - before.bytes, " bytes behind shared variable ", before.name, " (",
                       before.bytes, " bytes) was written");
    }
    if (!last) end = variables_[i].begin + variables_[i].bytes;
  }
#endif
  return {};
}

}  // namespace hearth::cuda::emulate
