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

/// How often a run holds its weights: as values and gradients with the moments and the average, and while it is built
/// as they were made too.
std::int64_t copies_of_weights(const RunConfig& config, bool trains) {
  return std::max<std::int64_t>(
      3, 2 + (trains ? optim::moments_of(config.optimizer) : 0) + (config.train.ema.decay ? 1 : 0));
}

class BoundedMemory final : public MemoryResource {
 public:
  BoundedMemory(MemoryResource& below, std::int64_t most, std::int64_t copies, std::int64_t available)
      : below_(below), most_(most), copies_(copies), available_(available) {}

  void* allocate(std::size_t bytes) override {
    const auto wanted = static_cast<double>(in_use_) + static_cast<double>(bytes);
    HEARTH_CHECK(OutOfMemory, wanted <= static_cast<double>(most_), "model: at least ",
                 static_cast<std::int64_t>(wanted / sizeof(float)), " parameters, which with gradients and what the ",
                 "optimizer keeps take ", static_cast<std::int64_t>(wanted * static_cast<double>(copies_)), " bytes; ",
                 available_, " are available; make the model smaller");
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
  std::int64_t most_, copies_, available_;
  std::int64_t in_use_ = 0;
};

}  // namespace

void require_model_fits(const RunConfig& config, const models::InputInfo& input, bool trains, std::int64_t available) {
  const std::int64_t copies = copies_of_weights(config, trains);
  const auto pool = make_pool_memory(std::make_unique<UntouchedRegions>());
  BoundedMemory bounded(*pool, available / copies, copies, available);
  const DeviceMemoryScope scope(Device{}, bounded);
  const BlankTensorScope blank;
  config.model.make(input);
}

}  // namespace hearth::train
