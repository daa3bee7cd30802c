// SPDX-License-Identifier: Apache-2.0
#include "train/memory/model_size.h"

#include <sys/mman.h>

#include <algorithm>
#include <map>
#include <memory>

#include "core/blank.h"
#include "core/memory/memory.h"

namespace hearth::train {
namespace {

/// Addresses whose pages the system gives when they are first touched, each page by itself.
class UntouchedRegions final : public RegionSource {
 public:
  std::byte* map(std::size_t& bytes) override {
    bytes = std::max(bytes, min_cpu_region);
    // The page behind a region keeps it apart from the next.
    void* const base =
        mmap(nullptr, bytes + guard, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (base == MAP_FAILED) return nullptr;
    madvise(base, bytes, MADV_NOHUGEPAGE);
    sizes_[static_cast<std::byte*>(base)] = bytes + guard;
    return static_cast<std::byte*>(base);
  }
  void unmap(std::byte* base) noexcept override { munmap(base, sizes_.find(base)->second); }

 private:
  static constexpr std::size_t guard = 4096;
  std::map<std::byte*, std::size_t> sizes_;
};

/// How often a rank holds its weights, of which dist.zero divides parts: as values and gradients with the moments and
/// the average, and while it is built as they were made too.
double copies_of_weights(const RunConfig& config, bool trains, int ranks) {
  const double part = 1.0 / ranks, values = config.dist.zero > 2 ? part : 1,
               gradients = config.dist.zero > 1 ? part : 1,
               kept = (trains ? optim::moments_of(config.optimizer) : 0) + (config.train.ema.decay ? 1 : 0);
  return values + gradients + std::max(1.0, config.dist.zero > 0 ? part * kept : kept);
}

class BoundedMemory final : public MemoryResource {
 public:
  BoundedMemory(MemoryResource& below, std::int64_t most, double copies, std::int64_t available)
      : below_(below), most_(most), available_(available), copies_(copies) {}

  void* allocate(std::size_t bytes) override {
    const auto wanted = static_cast<double>(in_use_) + static_cast<double>(bytes);
    HEARTH_CHECK(OutOfMemory, wanted <= static_cast<double>(most_), "model: at least ",
                 static_cast<std::int64_t>(wanted / sizeof(float)), " parameters, which with gradients and what the ",
                 "optimizer keeps take ", static_cast<std::int64_t>(wanted * copies_), " bytes; ", available_,
                 " are available; make the model smaller");
    void* const pointer = below_.allocate(bytes);
    in_use_ += static_cast<std::int64_t>(bytes);
    return pointer;
  }
  void deallocate(void* pointer, std::size_t bytes) noexcept override {
    in_use_ -= static_cast<std::int64_t>(bytes);
    below_.deallocate(pointer, bytes);
  }
  MemoryStatistics statistics() const override { return below_.statistics(); }
  void reset_peak() override { below_.reset_peak(); }

 private:
  MemoryResource& below_;
  std::int64_t most_, available_, in_use_ = 0;
  double copies_;
};

}  // namespace

void require_model_fits(const RunConfig& config, const models::InputInfo& input, bool trains, int ranks,
                        std::int64_t available) {
  const double copies = copies_of_weights(config, trains, ranks);
  const auto pool = make_pool_memory(std::make_unique<UntouchedRegions>());
  BoundedMemory bounded(*pool, static_cast<std::int64_t>(static_cast<double>(available) / copies), copies, available);
  const DeviceMemoryScope scope(Device{}, bounded);
  const BlankTensorScope blank;
  config.model.make(input);
}

}  // namespace hearth::train
