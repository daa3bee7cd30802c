// SPDX-License-Identifier: Apache-2.0
// The race checker: who may touch what, after whom.
#include "tests/emulated_gpu/checker.h"

#include <link.h>

#include <algorithm>
#include <bit>

#include "core/error.h"

#if HEARTH_EMULATE_CHECK
namespace hearth::cuda::emulate {
namespace {

constexpr std::uint32_t atomic_bit = 0x80000000u, copying_bit = 0x40000000u, who_mask = copying_bit - 1;
// Places in the program are kept as 32 bits, their distance from here.
const char anchor = 0;
std::uint32_t site_of(const void* p) { return static_cast<std::uint32_t>(static_cast<const char*>(p) - &anchor); }
const void* address_of(std::uint32_t site) { return &anchor + static_cast<std::int32_t>(site); }

constexpr std::uint32_t grid_party = 1;

}  // namespace

void Checker::begin_launch(const void* arguments, std::size_t argument_bytes, const void* stacks,
                           std::size_t stack_bytes) {
  const auto range = [](const void* p, std::size_t bytes) {
    return Range{reinterpret_cast<std::uintptr_t>(p), reinterpret_cast<std::uintptr_t>(p) + bytes};
  };
  arguments_ = range(arguments, argument_bytes);
  stacks_ = range(stacks, stack_bytes);
  device_.clear();
  parties_.assign(2, Party{});  // nobody, and several blocks
  parties_[grid_party].kind = Party::Kind::grid;
  joined_.clear();
  arrived_.clear();
  blocks_.clear();
  block_ = 0;
  if (constants_.empty()) find_program_ranges();
}

void Checker::begin_block(unsigned threads) {
  ++block_;
  epoch_ = 0;
  shared_.clear();
  told_.clear();
  seen_.clear();
  std::fill_n(party_of_thread_.begin(), threads, 0);
}

void Checker::meet() {
  ++epoch_;
  party_of_thread_.fill(0);
  if (told_.empty()) return;
  seen_ = std::move(told_);
  told_.clear();
}

void Checker::arrive(const void* counter, bool last) {
  Seen& arrived = arrived_[counter];
  for (const auto& [block, epoch] : seen_) arrived[block] = std::max(arrived[block], epoch);
  arrived[block_] = epoch_;
  if (!last) return;
  told_ = std::move(arrived);
  arrived_.erase(counter);
}

void Checker::meet_in_warp(unsigned warp, unsigned lanes) {
  WarpClocks& clocks = clocks_[warp];
  if (clocks.block != block_serial) {
    clocks.block = block_serial;
    for (unsigned i = 0; i < 32; ++i) {
      clocks.seen[i].fill(0);
      clocks.seen[i][i] = 1;
    }
  }
  std::array<std::uint32_t, 32> all{};
  for (unsigned rest = lanes; rest != 0; rest &= rest - 1) {
    const auto& seen = clocks.seen[static_cast<unsigned>(std::countr_zero(rest))];
    for (unsigned j = 0; j < 32; ++j) all[j] = std::max(all[j], seen[j]);
  }
  for (unsigned rest = lanes; rest != 0; rest &= rest - 1) {
    const unsigned i = static_cast<unsigned>(std::countr_zero(rest));
    clocks.seen[i] = all;
    ++clocks.seen[i][i];
    party_of_thread_[warp * 32 + i] = 0;
  }
}

std::uint32_t Checker::time_seen(unsigned thread, unsigned lane) const {
  const WarpClocks& clocks = clocks_[thread / 32];
  if (clocks.block != block_serial) return thread % 32 == lane ? 1 : 0;
  return clocks.seen[thread % 32][lane];
}

std::uint32_t Checker::add(const Party& party) {
  HEARTH_CHECK(InternalError, parties_.size() < copying_bit, "race checker: too many threads in one launch");
  parties_.push_back(party);
  return static_cast<std::uint32_t>(parties_.size() - 1);
}

std::uint32_t Checker::party_of(unsigned thread) {
  std::uint32_t& party = party_of_thread_[thread];
  if (party == 0)
    party = add({block_, epoch_, time_seen(thread, thread % 32), 1u << thread % 32, static_cast<std::uint16_t>(thread),
                 Party::Kind::thread});
  return party;
}

// Whether all that `before` did so far is done and seen by the thread `now`.
bool Checker::ordered(std::uint32_t before, std::uint32_t now) const {
  const Party &a = parties_[before], &b = parties_[now];
  if (a.kind == Party::Kind::grid) return false;
  if (a.block != b.block) {
    const auto seen = seen_.find(a.block);
    return seen != seen_.end() && a.epoch < seen->second;
  }
  if (a.kind == Party::Kind::thread && a.thread == b.thread) return true;
  if (a.epoch != b.epoch) return a.epoch < b.epoch;
  if (a.kind == Party::Kind::block || a.thread / 32 != b.thread / 32) return false;
  for (unsigned rest = a.lanes & ~(1u << b.thread % 32); rest != 0; rest &= rest - 1)
    if (time_seen(b.thread, static_cast<unsigned>(std::countr_zero(rest))) < a.clock) return false;
  return true;
}

// Those who have touched the bytes, of whom all must be waited for, with one more.
std::uint32_t Checker::join(std::uint32_t others, std::uint32_t one) {
  if (others == 0 || others == one || ordered(others, one)) return one;
  const Party a = parties_[others], b = parties_[one];
  if (a.kind == Party::Kind::grid || a.block != b.block) return grid_party;
  const bool same_warp = a.kind != Party::Kind::block && a.thread / 32 == b.thread / 32;
  if (a.kind == Party::Kind::block || (same_warp && (a.lanes & b.lanes) != 0 && a.clock >= b.clock)) return others;
  std::uint32_t& joined = joined_[std::uint64_t{others} << 32 | one];
  if (joined == 0) {
    joined = same_warp ? add({a.block, a.epoch, std::max(a.clock, b.clock), a.lanes | b.lanes,
                              static_cast<std::uint16_t>(a.thread & ~31u), Party::Kind::warp})
                       : add({a.block, a.epoch, 0, 0, 0, Party::Kind::block});
  }
  return joined;
}

std::string Checker::describe(const Stamp& stamp) const {
  const Party& party = parties_[stamp.who & who_mask];
  const unsigned x = party.thread % blockDim.x, y = party.thread / blockDim.x % blockDim.y,
                 z = party.thread / blockDim.x / blockDim.y;
  std::string who = "threads of several blocks";
  if (party.kind == Party::Kind::block) who = "threads of several warps";
  if (party.kind == Party::Kind::warp) who = join_text("threads of warp ", party.thread / 32);
  if (party.kind == Party::Kind::thread) who = join_text("thread (", x, ", ", y, ", ", z, ")");
  if (party.kind != Party::Kind::grid && party.block != block_) who += " of another block";
  return join_text(who, " at ", source_of(address_of(stamp.site)));
}

std::string Checker::check_records(Shadow& shadow, std::uint32_t who, const void* p, std::size_t bytes, Access access,
                                   std::uint32_t site, bool must_be_written) {
  std::string wrong;
  const auto conflict = [&](const Stamp& other, const char* did) {
    wrong = join_text("race: what this thread ", access == Access::read ? "reads" : "writes", " here, ", did, " by ",
                      describe(other), ", and nothing orders the two");
    return false;
  };
  shadow.visit(p, bytes, [&](Record& record) {
    Stamp &write = record.write, &read = record.read;
    const std::uint32_t writer = write.who & who_mask;
    const bool both_atomic = access == Access::atomic && (write.who & atomic_bit) != 0;
    if ((access == Access::read || access == Access::atomic) && must_be_written && write.who == 0) {
      wrong = "reads shared memory that this block has not written";
      return false;
    }
    if (access == Access::copy_end) {
      write = {who, site};
      return true;
    }
    if ((write.who & copying_bit) != 0) return conflict(write, "is being copied to (cp_async)");
    if (access == Access::read && read.who == who) return true;
    if (writer != 0 && !both_atomic && !ordered(writer, who)) return conflict(write, "is written");
    if (access == Access::read) {
      read = {join(read.who, who), site};
      return true;
    }
    if (read.who != 0 && !ordered(read.who, who)) return conflict(read, "is read");
    read = {};
    if (access == Access::atomic)
      write = {(both_atomic ? join(writer, who) : who) | atomic_bit, site};
    else
      write = {access == Access::copy_begin ? who | copying_bit : who, site};
    return true;
  });
  return wrong;
}

bool Checker::is_device_memory(std::uintptr_t p, std::size_t bytes, std::string& wrong) {
  for (std::size_t i = 0; i < blocks_.size(); ++i) {
    if (!blocks_[i].holds(p)) continue;
    if (p + bytes > blocks_[i].end) wrong = "touches bytes behind the end of a block of device memory";
    if (i > 0) std::swap(blocks_[i], blocks_[i - 1]);
    return true;
  }
  const auto block = block_at(reinterpret_cast<const void*>(p));
  if (!block) return false;
  const auto begin = reinterpret_cast<std::uintptr_t>(block->begin);
  blocks_.insert(blocks_.begin(), {begin, begin + block->bytes});
  if (p + bytes > begin + block->bytes) wrong = "touches bytes behind the end of a block of device memory";
  return true;
}

std::string Checker::check_elsewhere(std::uintptr_t p, std::size_t bytes, Access access) const {
  const auto inside = [&](const Range& range) { return range.holds(p) && p + bytes <= range.end; };
  if (inside(arguments_)) return access == Access::read ? "" : "writes to the kernel's arguments";
  if (access == Access::read && std::any_of(constants_.begin(), constants_.end(), inside)) return {};
  return "touches " + describe_address(reinterpret_cast<const void*>(p));
}

std::string Checker::check(unsigned thread, const void* p, std::size_t bytes, Access access, const void* site,
                           const SharedMemory& shared) {
  const auto address = reinterpret_cast<std::uintptr_t>(p);
  if (stacks_.holds(address)) return {};
  for (const Range& range : thread_local_)
    if (range.holds(address)) return {};
  const std::uint32_t where = site_of(site);
  if (shared.in_arena(p)) {
    if (!shared.holds(p, bytes)) return "touches shared memory outside of any variable";
    return check_records(shared_, party_of(thread), p, bytes, access, where, true);
  }
  std::string wrong;
  if (!is_device_memory(address, bytes, wrong)) return check_elsewhere(address, bytes, access);
  if (!wrong.empty()) return wrong;
  return check_records(device_, party_of(thread), p, bytes, access, where, false);
}

// What a kernel may read of the program itself: constants. And what this host thread keeps for itself, such as
// threadIdx.
void Checker::find_program_ranges() {
  const auto visit = [](dl_phdr_info* module, std::size_t, void* self) {
    Checker& checker = *static_cast<Checker*>(self);
    for (int i = 0; i < module->dlpi_phnum; ++i) {
      const auto& segment = module->dlpi_phdr[i];
      const std::uintptr_t begin = module->dlpi_addr + segment.p_vaddr;
      if (segment.p_type == PT_LOAD && (segment.p_flags & PF_W) == 0)
        checker.constants_.push_back({begin, begin + segment.p_memsz});
      // Constants with addresses in them are written once, by the loader.
      if (segment.p_type == PT_GNU_RELRO) checker.constants_.push_back({begin, begin + segment.p_memsz});
      const auto local = reinterpret_cast<std::uintptr_t>(module->dlpi_tls_data);
      if (segment.p_type == PT_TLS && local != 0) checker.thread_local_.push_back({local, local + segment.p_memsz});
    }
    return 0;
  };
  dl_iterate_phdr(visit, this);
}

}  // namespace hearth::cuda::emulate
#endif
