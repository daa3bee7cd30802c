// SPDX-License-Identifier: Apache-2.0
#include "tests/emulated_gpu/memory.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>

#include "core/error.h"

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#define HEARTH_POISON(p, n) ASAN_POISON_MEMORY_REGION(p, n)
#define HEARTH_UNPOISON(p, n) ASAN_UNPOISON_MEMORY_REGION(p, n)
#else
#define HEARTH_POISON(p, n) ((void)(p), (void)(n))
#define HEARTH_UNPOISON(p, n) ((void)(p), (void)(n))
#endif

namespace hearth::cuda::emulate {
namespace {

constexpr std::size_t alignment = 256;  // of cudaMalloc
constexpr std::size_t range_bytes = std::size_t{64} << 30;
constexpr std::size_t remembered_frees = 1024;
constexpr unsigned char red_zone = 0xc5;
constexpr unsigned char fresh = 0xff;
constexpr std::size_t filled_up_to = std::size_t{1} << 30;

std::size_t page_bytes() {
  static const std::size_t bytes = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  return bytes;
}

std::size_t round_up(std::size_t n, std::size_t step) { return (n + step - 1) / step * step; }

std::string place(const MemoryBlock& block, const void* address, const char* state) {
  return join_text("byte ", static_cast<const std::byte*>(address) - block.begin, " of a ", state,
                   block.kind == MemoryKind::device ? " device block of " : " pinned block of ", block.bytes, " bytes");
}

}  // namespace

// Pages come one after the other out of large reservations, so an address is not seen twice. A reservation goes back to
// the system when it is used up and the last block in it is freed.
std::byte* Memory::take_pages(std::size_t bytes) {
  const std::size_t wanted = bytes + page_bytes();  // the guard behind
  if (ranges_.empty() || ranges_.back().bytes - ranges_.back().used < wanted) {
    const std::size_t size = std::max(range_bytes, round_up(wanted + page_bytes(), page_bytes()));
    void* begin = mmap(nullptr, size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (begin == MAP_FAILED) return nullptr;
    ranges_.push_back({static_cast<std::byte*>(begin), size, page_bytes(), 0});
  }
  Range& range = ranges_.back();
  std::byte* pages = range.begin + range.used;
  range.used += wanted;
  ++range.live;
  return pages;
}

void Memory::drop_pages(const Span& span) {
  mprotect(span.mapped, span.mapped_bytes, PROT_NONE);
  madvise(span.mapped, span.mapped_bytes, MADV_DONTNEED);
  const auto range = std::find_if(ranges_.begin(), ranges_.end(), [&](const Range& r) {
    return span.mapped >= r.begin && span.mapped < r.begin + r.bytes;
  });
  if (--range->live > 0 || &*range == &ranges_.back()) return;
  HEARTH_UNPOISON(range->begin, range->bytes);
  munmap(range->begin, range->bytes);
  ranges_.erase(range);
}

void Memory::protect(const Span& span, bool accessible) const {
  const int result = mprotect(span.mapped, span.mapped_bytes, accessible ? PROT_READ | PROT_WRITE : PROT_NONE);
  HEARTH_CHECK(OutOfMemory, result == 0, "emulated device memory: the host has no more memory mappings; ",
               spans_.size(), " blocks are in use");
}

MemoryBlock Memory::reserve(MemoryKind kind, int device, std::size_t bytes) {
  if (bytes > std::size_t{1} << 46) return {};
  const std::size_t whole = round_up(std::max<std::size_t>(bytes, 1), alignment);
  Span span;
  span.mapped_bytes = round_up(whole, page_bytes());
  span.mapped = take_pages(span.mapped_bytes);
  if (span.mapped == nullptr) return {};
  // The end is what overruns reach first: it touches the guard page as closely as the alignment of the start allows.
  span.block = {span.mapped + span.mapped_bytes - whole, bytes, kind, device, ++serial_};
  if (kind == MemoryKind::device) in_use_[device] += whole;
  const std::byte* begin = span.block.begin;
  return spans_.emplace(begin, span).first->second.block;
}

void Memory::open(const void* begin) {
  Span& span = spans_.at(static_cast<const std::byte*>(begin));
  span.opened = true;
  protect(span, true);
  const bool filled = !idle_ || span.block.kind != MemoryKind::device;
  if (filled && span.block.bytes <= filled_up_to) std::memset(span.block.begin, fresh, span.block.bytes);
  mark_red_zones(span);
  if (span.block.kind == MemoryKind::device && host_access_ == HostAccess::faults && !work_runs_) protect(span, false);
}

MemoryBlock Memory::register_module(void* begin, std::size_t bytes, int device) {
  Span span;
  span.block = {static_cast<std::byte*>(begin), bytes, MemoryKind::pinned, device, ++serial_};
  span.opened = true;
  return spans_.emplace(span.block.begin, span).first->second.block;
}

std::string Memory::close(const void* begin) {
  const auto found = spans_.find(static_cast<const std::byte*>(begin));
  const Span span = found->second;
  std::string damage;
  if (span.mapped != nullptr) {
    if (span.opened) damage = inspect_red_zones(span);
    if (span.block.kind == MemoryKind::device)
      in_use_[span.block.device] -= round_up(std::max<std::size_t>(span.block.bytes, 1), alignment);
    HEARTH_POISON(span.mapped, span.mapped_bytes);
    drop_pages(span);
    freed_.push_back(span.block);
    if (freed_.size() > remembered_frees) freed_.pop_front();
  }
  spans_.erase(found);
  return damage;
}

void Memory::mark_red_zones(const Span& span) const {
  std::byte* end = span.block.begin + span.block.bytes;
  const auto before = static_cast<std::size_t>(span.block.begin - span.mapped);
  const auto behind = static_cast<std::size_t>(span.mapped + span.mapped_bytes - end);
  std::memset(span.mapped, red_zone, before);
  std::memset(end, red_zone, behind);
  HEARTH_POISON(span.mapped, before);
  HEARTH_POISON(end, behind);
}

std::string Memory::inspect_red_zones(const Span& span) const {
  std::string damage;
  std::byte* end = span.block.begin + span.block.bytes;
  const auto before = static_cast<std::size_t>(span.block.begin - span.mapped);
  const auto behind = static_cast<std::size_t>(span.mapped + span.mapped_bytes - end);
  HEARTH_UNPOISON(span.mapped, before);
  HEARTH_UNPOISON(end, behind);
  if (host_access_ == HostAccess::faults) protect(span, true);
  const auto broken = [](std::byte value) { return value != std::byte{red_zone}; };
  if (const std::byte* p = std::find_if(end, end + behind, broken); p != end + behind)
    damage = join_text("something wrote ", p - end, " bytes behind the end of a block of ", span.block.bytes, " bytes");
  else if (const std::byte* q = std::find_if(span.mapped, span.block.begin, broken); q != span.block.begin)
    damage = join_text("something wrote ", span.block.begin - q, " bytes before the start of a block of ",
                       span.block.bytes, " bytes");
  return damage;
}

const Memory::Span* Memory::span_at(const void* address) const {
  const auto* p = static_cast<const std::byte*>(address);
  auto next = spans_.upper_bound(p);
  if (next == spans_.begin()) return nullptr;
  const Span& span = (--next)->second;
  return p < span.block.begin + span.block.bytes ? &span : nullptr;
}

const Memory::Span* Memory::span_starting(const void* begin) const {
  const auto found = spans_.find(static_cast<const std::byte*>(begin));
  return found == spans_.end() ? nullptr : &found->second;
}

const MemoryBlock* Memory::find(const void* address) const {
  const Span* span = span_at(address);
  return span == nullptr ? nullptr : &span->block;
}

const MemoryBlock* Memory::find_start(const void* begin) const {
  const Span* span = span_starting(begin);
  return span == nullptr || span->mapped == nullptr ? nullptr : &span->block;
}

bool Memory::is_adopted(const void* begin) const {
  const Span* span = span_starting(begin);
  return span != nullptr && span->mapped == nullptr;
}

bool Memory::in_ranges(const void* address) const {
  const auto* p = static_cast<const std::byte*>(address);
  return std::any_of(ranges_.begin(), ranges_.end(),
                     [p](const Range& r) { return p >= r.begin && p < r.begin + r.bytes; });
}

bool Memory::alive(std::uint64_t serial, const void* begin) const {
  const Span* span = span_starting(begin);
  return span != nullptr && span->block.serial == serial && span->opened;
}

std::string Memory::describe(const void* address) const {
  if (address == nullptr) return "a null pointer";
  if (const Span* span = span_at(address))
    return place(span->block, address, span->opened ? "live" : "not yet allocated");
  const auto* p = static_cast<const std::byte*>(address);
  for (auto block = freed_.rbegin(); block != freed_.rend(); ++block)
    if (p >= block->begin && p < block->begin + std::max<std::size_t>(block->bytes, 1))
      return place(*block, address, "freed");
  if (!in_ranges(p)) return "host memory that is not pinned";
  const auto next = spans_.upper_bound(p);
  if (next == spans_.begin()) return "an address where no block is";
  const MemoryBlock& block = std::prev(next)->second.block;
  return join_text("an address ", p - block.begin - static_cast<std::ptrdiff_t>(block.bytes),
                   " bytes behind the end of a block of ", block.bytes, " bytes");
}

std::size_t Memory::in_use(int device) const {
  const auto found = in_use_.find(device);
  return found == in_use_.end() ? 0 : found->second;
}

void Memory::set_host_access(HostAccess access) {
  host_access_ = access;
  for (const auto& [begin, span] : spans_)
    if (span.opened && span.block.kind == MemoryKind::device)
      protect(span, access == HostAccess::allowed || work_runs_);
}

void Memory::let_in(bool work_runs) {
  work_runs_ = work_runs;
  if (host_access_ == HostAccess::allowed) return;
  for (const auto& [begin, span] : spans_)
    if (span.opened && span.block.kind == MemoryKind::device) protect(span, work_runs);
}

}  // namespace hearth::cuda::emulate
