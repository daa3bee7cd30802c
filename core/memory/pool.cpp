// SPDX-License-Identifier: Apache-2.0
// Best-fit pool with splitting and merging. A training step repeats its allocations, so after the first one every
// request is served from here, on the CPU without a page fault. Regions are given back only where there are no more.
#include <sys/mman.h>

#include <iterator>
#include <map>
#include <mutex>
#include <set>
#include <vector>

#include "core/error.h"
#include "core/memory/memory.h"

namespace hearth {
namespace {

constexpr std::size_t granule = pool_granule;
constexpr std::size_t huge_page = std::size_t{2} << 20;

std::size_t round_up(std::size_t value, std::size_t to) { return (value + to - 1) / to * to; }

// 2 MiB aligned, with an unmapped guard behind each region.
class SystemRegions final : public RegionSource {
 public:
  std::byte* map(std::size_t& bytes) override {
    bytes = round_up(bytes > min_cpu_region ? bytes : min_cpu_region, huge_page);
    const std::size_t mapped = bytes + 2 * huge_page;  // room to align, and a guard behind
    void* raw = mmap(nullptr, mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (raw == MAP_FAILED) return nullptr;
    auto* const base = reinterpret_cast<std::byte*>(round_up(reinterpret_cast<std::size_t>(raw), huge_page));
    madvise(base, bytes, MADV_HUGEPAGE);
    mprotect(base + bytes, huge_page / 2, PROT_NONE);
    try {
      mapped_.emplace(base, Mapping{raw, mapped});
    } catch (...) {
      munmap(raw, mapped);
      throw;
    }
    return base;
  }
  void unmap(std::byte* base) noexcept override {
    const auto found = mapped_.find(base);
    munmap(found->second.raw, found->second.bytes);
    mapped_.erase(found);
  }

 private:
  struct Mapping {
    void* raw;
    std::size_t bytes;
  };
  std::map<std::byte*, Mapping> mapped_;
};

// Blocks of another resource. What it refuses is its own to explain.
class BlockRegions final : public RegionSource {
 public:
  BlockRegions(MemoryResource& below, std::size_t least) : below_(below), min_(least) {}

  std::byte* map(std::size_t& bytes) override {
    // Two blocks may lie side by side; what is left unused keeps the regions apart. Near a limit the regions are
    // smaller.
    std::byte* base = nullptr;
    std::size_t size = bytes > min_ - granule ? bytes : min_ - granule;
    while (base == nullptr) {
      try {
        base = static_cast<std::byte*>(below_.allocate(size + granule));
      } catch (const OutOfMemory&) {
        if (size == bytes) throw;
        const std::size_t half = round_up(size / 2, granule);
        size = half > bytes ? half : bytes;
      }
    }
    bytes = size;
    try {
      sizes_.emplace(base, bytes + granule);
    } catch (...) {
      below_.deallocate(base, bytes + granule);
      throw;
    }
    return base;
  }
  void unmap(std::byte* base) noexcept override {
    const auto found = sizes_.find(base);
    below_.deallocate(base, found->second);
    sizes_.erase(found);
  }

 private:
  MemoryResource& below_;
  std::size_t min_;
  std::map<std::byte*, std::size_t> sizes_;
};

// What may fail happens in allocate(): a used block keeps the nodes that its return to the free list needs, so that
// deallocate() asks for no memory.
class PoolMemory final : public MemoryResource {
 public:
  explicit PoolMemory(std::unique_ptr<RegionSource> source) : source_(std::move(source)) {}
  ~PoolMemory() override {
    for (const Region& region : regions_) source_->unmap(region.base);
  }

  void* allocate(std::size_t bytes) override {
    HEARTH_CHECK(OutOfMemory, bytes < (std::size_t{1} << 46), "out of memory: ", bytes,
                 " bytes asked, more than any machine has");
    const std::size_t size = bytes == 0 ? granule : round_up(bytes, granule);
    const std::lock_guard lock(mutex_);
    auto found = free_by_size_.lower_bound({size, nullptr});
    if (found == free_by_size_.end()) {
      grow(size);
      found = free_by_size_.lower_bound({size, nullptr});
    }
    std::byte* const base = found->second;
    Block& block = blocks_.find(base)->second;
    if (block.size > size) {
      add_free(base + size, block.size - size);
      block.size = size;
    }
    block.free_node = free_by_size_.extract(found);
    in_use_ += static_cast<std::int64_t>(size);
    peak_ = in_use_ > peak_ ? in_use_ : peak_;
    ++allocations_;
    return base;
  }

  void deallocate(void* pointer, std::size_t) noexcept override {
    const std::lock_guard lock(mutex_);
    auto block = blocks_.find(static_cast<std::byte*>(pointer));
    if (block == blocks_.end() || is_free(block)) return;
    in_use_ -= static_cast<std::int64_t>(block->second.size);
    FreeBlocks::node_type node = std::move(block->second.free_node);
    // Merge with the free neighbours.
    if (const auto after = std::next(block); touch(block, after) && is_free(after)) absorb(block, after);
    if (block != blocks_.begin())
      if (const auto before = std::prev(block); touch(before, block) && is_free(before)) {
        absorb(before, block);
        block = before;
      }
    node.value() = {block->second.size, block->first};
    free_by_size_.insert(std::move(node));
  }

  MemoryStatistics statistics() const override {
    const std::lock_guard lock(mutex_);
    return {in_use_, peak_, reserved_, allocations_, system_calls_};
  }
  void reset_peak() override {
    const std::lock_guard lock(mutex_);
    peak_ = in_use_;
  }

 private:
  using FreeBlocks = std::set<std::pair<std::size_t, std::byte*>>;
  struct Block {
    std::size_t size;
    FreeBlocks::node_type free_node;  // of a used block
  };
  using Blocks = std::map<std::byte*, Block>;
  struct Region {
    std::byte* base;
    std::size_t size;
  };

  static bool is_free(Blocks::const_iterator block) { return block->second.free_node.empty(); }
  // Whether the second begins where the first ends. Regions are never adjacent, so blocks of two never touch.
  bool touch(Blocks::const_iterator first, Blocks::const_iterator second) const {
    return second != blocks_.end() && first->first + first->second.size == second->first;
  }

  void add_free(std::byte* base, std::size_t size) {
    const auto block = blocks_.emplace(base, Block{size, {}}).first;
    try {
      free_by_size_.insert({size, base});
    } catch (...) {
      blocks_.erase(block);
      throw;
    }
  }
  // Makes one block of two, which is not in the free list.
  void absorb(Blocks::iterator first, Blocks::iterator second) {
    for (const auto block : {first, second}) free_by_size_.erase({block->second.size, block->first});
    first->second.size += second->second.size;
    blocks_.erase(second);
  }

  void grow(std::size_t size) {
    std::size_t bytes = size;
    regions_.reserve(regions_.size() + 1);
    std::byte* base = source_->map(bytes);
    // What was cached for other shapes may be in small regions.
    if (base == nullptr && give_back_free_regions()) base = source_->map(bytes = size);
    HEARTH_CHECK(OutOfMemory, base != nullptr, "out of memory: ", size, " bytes asked, ", in_use_, " in use, ",
                 reserved_ - in_use_, " cached; the system refused; use a smaller batch, or a lower precision");
    ++system_calls_;
    regions_.push_back({base, bytes});
    reserved_ += static_cast<std::int64_t>(bytes);
    add_free(base, bytes);
  }

  /// Whether there were any.
  bool give_back_free_regions() {
    return std::erase_if(regions_, [this](const Region& region) {
             const auto block = blocks_.find(region.base);
             if (!is_free(block) || block->second.size != region.size) return false;
             free_by_size_.erase({region.size, region.base});
             blocks_.erase(block);
             source_->unmap(region.base);
             reserved_ -= static_cast<std::int64_t>(region.size);
             return true;
           }) > 0;
  }

  const std::unique_ptr<RegionSource> source_;
  mutable std::mutex mutex_;
  Blocks blocks_;  // all, free and used
  FreeBlocks free_by_size_;
  std::vector<Region> regions_;
  std::int64_t in_use_ = 0;
  std::int64_t peak_ = 0;
  std::int64_t reserved_ = 0;
  std::int64_t allocations_ = 0;
  std::int64_t system_calls_ = 0;
};

}  // namespace

std::unique_ptr<MemoryResource> make_pool_memory(std::unique_ptr<RegionSource> source) {
  return std::make_unique<PoolMemory>(std::move(source));
}
std::unique_ptr<MemoryResource> make_pool_memory(MemoryResource& below, std::size_t min_region) {
  return make_pool_memory(std::make_unique<BlockRegions>(below, min_region));
}
std::unique_ptr<MemoryResource> make_pool_memory() { return make_pool_memory(std::make_unique<SystemRegions>()); }

}  // namespace hearth
