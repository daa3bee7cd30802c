// SPDX-License-Identifier: Apache-2.0
// The adaptors around a pool.
#include "core/memory/memory.h"

#include <atomic>
#include <cstdlib>
#include <cstring>

#include "core/error.h"

namespace hearth {
namespace {

constexpr std::size_t alignment = 64;

std::size_t padded(std::size_t bytes) {
  return bytes == 0 ? alignment : (bytes + alignment - 1) / alignment * alignment;
}

[[noreturn]] void throw_out_of_memory(std::size_t bytes, const MemoryStatistics& now, const char* reason) {
  throw OutOfMemory(join_text("out of memory: ", bytes, " bytes asked, ", now.in_use, " in use, ",
                              now.reserved - now.in_use, " cached; ", reason,
                              "; use a smaller batch, or a lower precision"));
}

class SystemMemory final : public MemoryResource {
 public:
  void* allocate(std::size_t bytes) override {
    void* pointer = bytes > (std::size_t{1} << 46) ? nullptr : std::aligned_alloc(alignment, padded(bytes));
    if (pointer == nullptr) throw_out_of_memory(bytes, statistics(), "the system refused");
    in_use_ += static_cast<std::int64_t>(bytes);
    ++allocations_;
    return pointer;
  }
  void deallocate(void* pointer, std::size_t bytes) noexcept override {
    in_use_ -= static_cast<std::int64_t>(bytes);
    std::free(pointer);
  }
  MemoryStatistics statistics() const override { return {in_use_, in_use_, in_use_, allocations_, allocations_}; }
  void reset_peak() override {}

 private:
  std::atomic<std::int64_t> in_use_{0};
  std::atomic<std::int64_t> allocations_{0};
};

class LimitedMemory final : public MemoryResource {
 public:
  LimitedMemory(MemoryResource& below, std::int64_t bytes, std::int64_t fail_at)
      : below_(below), limit_(bytes), fail_at_(fail_at) {}

  void* allocate(std::size_t bytes) override {
    const std::int64_t number = ++allocations_;
    if (number == fail_at_ || !take(bytes)) {
      const std::string reason = number == fail_at_ ? std::string("the limit adaptor was told to fail here")
                                                    : join_text("the limit of ", limit_, " bytes is reached");
      throw_out_of_memory(bytes, statistics(), reason.c_str());
    }
    try {
      return below_.allocate(bytes);
    } catch (...) {
      in_use_ -= static_cast<std::int64_t>(bytes);
      throw;
    }
  }
  void deallocate(void* pointer, std::size_t bytes) noexcept override {
    in_use_ -= static_cast<std::int64_t>(bytes);
    below_.deallocate(pointer, bytes);
  }
  MemoryStatistics statistics() const override {
    MemoryStatistics result = below_.statistics();
    result.in_use = in_use_;
    result.limit = limit_;
    return result;
  }
  void reset_peak() override { below_.reset_peak(); }

 private:
  /// Counts the bytes only if they fit: another thread must not find the limit reached by what is refused here.
  bool take(std::size_t bytes) {
    std::int64_t held = in_use_.load();
    do {
      if (held > limit_ || bytes > static_cast<std::size_t>(limit_ - held)) return false;
    } while (!in_use_.compare_exchange_weak(held, held + static_cast<std::int64_t>(bytes)));
    return true;
  }

  MemoryResource& below_;
  std::int64_t limit_;
  std::int64_t fail_at_;
  std::atomic<std::int64_t> in_use_{0};
  std::atomic<std::int64_t> allocations_{0};
};

class CountingMemory final : public MemoryResource {
 public:
  explicit CountingMemory(MemoryResource& below) : below_(below) {}

  void* allocate(std::size_t bytes) override {
    void* pointer = below_.allocate(bytes);
    const std::int64_t now = in_use_ += static_cast<std::int64_t>(bytes);
    std::int64_t peak = peak_.load(std::memory_order_relaxed);
    while (now > peak && !peak_.compare_exchange_weak(peak, now)) {
    }
    ++allocations_;
    return pointer;
  }
  void deallocate(void* pointer, std::size_t bytes) noexcept override {
    in_use_ -= static_cast<std::int64_t>(bytes);
    below_.deallocate(pointer, bytes);
  }
  MemoryStatistics statistics() const override {
    const MemoryStatistics lower = below_.statistics();
    return {in_use_, peak_, lower.reserved, allocations_, lower.system_calls, lower.limit};
  }
  void reset_peak() override { peak_ = in_use_.load(); }

 private:
  MemoryResource& below_;
  std::atomic<std::int64_t> in_use_{0};
  std::atomic<std::int64_t> peak_{0};
  std::atomic<std::int64_t> allocations_{0};
};

/// Ends the process with this message, as no destructor may throw.
[[noreturn]] void throw_overrun(std::size_t bytes) {
  throw InternalError(join_text("memory was written outside a block of ", bytes, " bytes"));
}

class PoisonedMemory final : public MemoryResource {
 public:
  explicit PoisonedMemory(MemoryResource& below) : below_(below) {}

  void* allocate(std::size_t bytes) override {
    auto* base = static_cast<unsigned char*>(below_.allocate(bytes + 2 * canary_bytes));
    std::memset(base, canary, canary_bytes);
    std::memset(base + canary_bytes, 0xFF, bytes);
    std::memset(base + canary_bytes + bytes, canary, canary_bytes);
    return base + canary_bytes;
  }
  void deallocate(void* pointer, std::size_t bytes) noexcept override {
    auto* base = static_cast<unsigned char*>(pointer) - canary_bytes;
    for (std::size_t i = 0; i < canary_bytes; ++i)
      if (base[i] != canary || base[canary_bytes + bytes + i] != canary) {
        throw_overrun(bytes);
      }
    std::memset(base, 0xDD, bytes + 2 * canary_bytes);
    below_.deallocate(base, bytes + 2 * canary_bytes);
  }
  MemoryStatistics statistics() const override { return below_.statistics(); }
  void reset_peak() override { below_.reset_peak(); }

 private:
  static constexpr std::size_t canary_bytes = alignment;
  static constexpr unsigned char canary = 0xC5;
  MemoryResource& below_;
};

}  // namespace

std::unique_ptr<MemoryResource> make_system_memory() { return std::make_unique<SystemMemory>(); }
std::unique_ptr<MemoryResource> make_limited_memory(MemoryResource& below, std::int64_t bytes, std::int64_t fail_at) {
  return std::make_unique<LimitedMemory>(below, bytes, fail_at);
}
std::unique_ptr<MemoryResource> make_counting_memory(MemoryResource& below) {
  return std::make_unique<CountingMemory>(below);
}
std::unique_ptr<MemoryResource> make_poisoned_memory(MemoryResource& below) {
  return std::make_unique<PoisonedMemory>(below);
}

}  // namespace hearth
