// SPDX-License-Identifier: Apache-2.0
// One suite for every memory resource, and what each adaptor adds.
#include "core/memory/memory.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <map>
#include <random>
#include <thread>
#include <vector>

#include "core/error.h"
#include "core/tensor.h"

namespace hearth::memory_test {
namespace {

struct Built {
  std::vector<std::unique_ptr<MemoryResource>> layers;
  MemoryResource& top() { return *layers.back(); }
};

struct Maker {
  const char* name;
  std::function<Built()> make;
};
void PrintTo(const Maker& maker, std::ostream* out) { *out << maker.name; }

Built one(std::unique_ptr<MemoryResource> resource) {
  Built built;
  built.layers.push_back(std::move(resource));
  return built;
}
template <class F>
Built over_pool(F adaptor) {
  Built built = one(make_pool_memory());
  auto layer = adaptor(*built.layers[0]);
  built.layers.push_back(std::move(layer));
  return built;
}

class MemoryResourceSuite : public testing::TestWithParam<Maker> {};

TEST_P(MemoryResourceSuite, BlocksAreAlignedAndDisjoint) {
  Built built = GetParam().make();
  std::mt19937 random(7);
  struct Block {
    unsigned char* pointer;
    std::size_t bytes;
    unsigned char mark;
  };
  std::vector<Block> blocks;
  for (int round = 0; round < 2000; ++round) {
    if (blocks.empty() || random() % 3 != 0) {
      const std::size_t bytes = random() % 5 == 0 ? random() % 3000000 : random() % 5000;
      auto* pointer = static_cast<unsigned char*>(built.top().allocate(bytes));
      ASSERT_EQ(reinterpret_cast<std::uintptr_t>(pointer) % 64, 0u);
      const auto mark = static_cast<unsigned char>(round);
      std::memset(pointer, mark, bytes);
      blocks.push_back({pointer, bytes, mark});
    } else {
      const std::size_t i = random() % blocks.size();
      ASSERT_EQ(std::count(blocks[i].pointer, blocks[i].pointer + blocks[i].bytes, blocks[i].mark),
                static_cast<std::ptrdiff_t>(blocks[i].bytes));
      built.top().deallocate(blocks[i].pointer, blocks[i].bytes);
      blocks.erase(blocks.begin() + static_cast<std::ptrdiff_t>(i));
    }
  }
  for (const Block& block : blocks) built.top().deallocate(block.pointer, block.bytes);
  EXPECT_EQ(built.top().statistics().in_use, 0);
}

TEST_P(MemoryResourceSuite, RefusesTheImpossible) {
  Built built = GetParam().make();
  EXPECT_THROW(built.top().allocate(std::size_t{1} << 50), OutOfMemory);
  void* pointer = built.top().allocate(100);
  EXPECT_NE(pointer, nullptr);
  built.top().deallocate(pointer, 100);
}

INSTANTIATE_TEST_SUITE_P(
    Resources, MemoryResourceSuite,
    testing::Values(
        Maker{"system", [] { return one(make_system_memory()); }},
        Maker{"pool", [] { return one(make_pool_memory()); }},
        Maker{
            "limited",
            [] { return over_pool([](MemoryResource& r) { return make_limited_memory(r, std::int64_t{1} << 40); }); }},
        Maker{"counting", [] { return over_pool([](MemoryResource& r) { return make_counting_memory(r); }); }},
        Maker{"poisoned", [] { return over_pool([](MemoryResource& r) { return make_poisoned_memory(r); }); }}),
    [](const auto& test) { return test.param.name; });

TEST(PoolMemory, RepeatsWithoutAskingTheSystem) {
  const auto pool = make_pool_memory();
  const auto step = [&] {
    std::vector<std::pair<void*, std::size_t>> blocks;
    for (const std::size_t megabytes : {3, 70, 1, 20, 5, 33, 2}) {
      blocks.emplace_back(pool->allocate(megabytes << 20), megabytes << 20);
      if (blocks.size() % 3 == 0) {
        pool->deallocate(blocks[1].first, blocks[1].second);
        blocks.erase(blocks.begin() + 1);
      }
    }
    for (const auto& [pointer, bytes] : blocks) pool->deallocate(pointer, bytes);
  };
  step();
  const std::int64_t calls = pool->statistics().system_calls;
  for (int i = 0; i < 100; ++i) step();
  EXPECT_EQ(pool->statistics().system_calls, calls);
}

/// Regions of exactly what is asked for, up to so many bytes at once.
class FewRegions final : public RegionSource {
 public:
  explicit FewRegions(std::size_t most) : left_(most) {}
  std::byte* map(std::size_t& bytes) override {
    if (bytes > left_) return nullptr;
    left_ -= bytes;
    auto* const base = static_cast<std::byte*>(std::aligned_alloc(256, bytes + 256));
    sizes_[base] = bytes;
    return base;
  }
  void unmap(std::byte* base) noexcept override {
    left_ += sizes_.at(base);
    sizes_.erase(base);
    std::free(base);
  }

 private:
  std::size_t left_;
  std::map<std::byte*, std::size_t> sizes_;
};

TEST(PoolMemory, GivesFreeRegionsBackBeforeItRefuses) {
  const auto pool = make_pool_memory(std::make_unique<FewRegions>(4096));
  void* const a = pool->allocate(1024);
  void* const b = pool->allocate(1024);
  void* const c = pool->allocate(2048);
  for (const auto& [block, bytes] : {std::pair(a, 1024), {c, 2048}}) pool->deallocate(block, std::size_t(bytes));
  // 3072 bytes are free, in two regions that do not touch.
  void* const d = pool->allocate(3072);
  EXPECT_EQ(pool->statistics().reserved, 4096);
  EXPECT_EQ(pool->statistics().system_calls, 4);
  EXPECT_THROW(pool->allocate(256), OutOfMemory);
  pool->deallocate(d, 3072);
  void* const part = pool->allocate(256);
  EXPECT_THROW(pool->allocate(3072), OutOfMemory) << "a region with a used block stays";
  pool->deallocate(part, 256);
  pool->deallocate(b, 1024);
  void* const whole = pool->allocate(4096);
  EXPECT_EQ(pool->statistics().reserved, 4096);
  pool->deallocate(whole, 4096);
}

TEST(PoolMemory, HasSmallerRegionsNearALimit) {
  constexpr std::size_t mib = std::size_t{1} << 20;
  const auto system = make_pool_memory();
  const auto limited = make_limited_memory(*system, 10 * mib);
  const auto pool = make_pool_memory(*limited, 32 * mib);
  std::vector<void*> blocks;
  for (int i = 0; i < 7; ++i) blocks.push_back(pool->allocate(mib));
  EXPECT_EQ(pool->statistics().system_calls, 1) << "a quarter of 32 MiB holds all of them";
  EXPECT_LE(pool->statistics().reserved, std::int64_t(8 * mib));
  blocks.push_back(pool->allocate(mib));
  EXPECT_THROW(pool->allocate(2 * mib), OutOfMemory);
  for (void* const block : blocks) pool->deallocate(block, mib);
  EXPECT_NO_THROW(pool->deallocate(pool->allocate(6 * mib), 6 * mib));
}

TEST(LimitedMemory, StopsAtTheLimitAndAtTheChosenCall) {
  const auto pool = make_pool_memory();
  const auto limited = make_limited_memory(*pool, 1000);
  void* first = limited->allocate(600);
  EXPECT_THROW(limited->allocate(600), OutOfMemory);
  limited->deallocate(first, 600);
  void* second = limited->allocate(900);
  limited->deallocate(second, 900);

  const auto third_fails = make_limited_memory(*pool, 1 << 20, 3);
  void* a = third_fails->allocate(1);
  void* b = third_fails->allocate(1);
  EXPECT_THROW(third_fails->allocate(1), OutOfMemory);
  third_fails->deallocate(a, 1);
  third_fails->deallocate(b, 1);
}

TEST(LimitedMemory, WhatIsRefusedTakesNoRoomFromOtherThreads) {
  const auto pool = make_pool_memory();
  const auto limited = make_limited_memory(*pool, 1000);
  std::atomic<bool> done{false};
  std::thread greedy([&] {
    while (!done) EXPECT_THROW(limited->allocate(2000), OutOfMemory);
  });
  for (int i = 0; i < 20000; ++i) {
    void* block = nullptr;
    EXPECT_NO_THROW(block = limited->allocate(900));
    if (block == nullptr) break;
    limited->deallocate(block, 900);
  }
  done = true;
  greedy.join();
  EXPECT_THROW(limited->allocate(std::size_t{1} << 63), OutOfMemory);
  EXPECT_EQ(limited->statistics().in_use, 0);
}

// The environment is read once, so that each of these needs a process of its own.
void report_limit(const char* megabytes) {
  setenv("HEARTH_MEMORY_LIMIT_MB", megabytes, 1);
  std::string text;
  try {
    text = std::to_string(memory_of({}).statistics().limit);
  } catch (const ConfigError& error) {
    text = error.what();
  }
  std::fputs(text.c_str(), stderr);
  std::_Exit(0);
}

TEST(MemoryLimitDeathTest, ComesFromTheEnvironmentAsAWholeNumber) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(report_limit("3"), testing::ExitedWithCode(0), "^3145728$");
  for (const char* wrong : {"", "0", "-1", "4G", "8796093022208", "much"})
    EXPECT_EXIT(report_limit(wrong), testing::ExitedWithCode(0), "from 1 to 8796093022207") << wrong;
}

TEST(AvailableMemory, CountsWhatThePoolHasCached) {
  // Holds more than any machine has, and nothing of it is in use.
  class Cache final : public MemoryResource {
    void* allocate(std::size_t) override { throw OutOfMemory("nothing here"); }
    void deallocate(void*, std::size_t) noexcept override {}
    MemoryStatistics statistics() const override { return {.reserved = std::int64_t{1} << 55}; }
    void reset_peak() override {}
  } cache;
  EXPECT_LT(available_memory({}), std::int64_t{1} << 55);
  const MemoryScope scope(cache);
  EXPECT_GE(available_memory({}), std::int64_t{1} << 55);
}

TEST(CountingMemory, RemembersThePeak) {
  const auto pool = make_pool_memory();
  const auto counting = make_counting_memory(*pool);
  void* a = counting->allocate(1000);
  void* b = counting->allocate(500);
  counting->deallocate(a, 1000);
  EXPECT_EQ(counting->statistics().in_use, 500);
  EXPECT_EQ(counting->statistics().peak, 1500);
  EXPECT_EQ(counting->statistics().allocations, 2);
  counting->deallocate(b, 500);
}

TEST(PoisonedMemory, FreshFloatsAreNotNumbersAndCanariesAreChecked) {
  const auto pool = make_pool_memory();
  const auto poisoned = make_poisoned_memory(*pool);
  auto* values = static_cast<float*>(poisoned->allocate(16));
  EXPECT_TRUE(values[0] != values[0]);
  poisoned->deallocate(values, 16);
  EXPECT_DEATH(
      {
        auto* bytes = static_cast<char*>(poisoned->allocate(16));
        bytes[16] = 0;
        poisoned->deallocate(bytes, 16);
      },
      "written outside");
}

TEST(MemoryScope, TensorsComeFromTheResourceInForce) {
  const auto pool = make_pool_memory();
  const auto limited = make_limited_memory(*pool, 4096);
  const MemoryScope scope(*limited);
  const Tensor fits = Tensor::zeros({100});
  try {
    Tensor::zeros({64, 64});
    FAIL() << "the limit was not seen";
  } catch (const OutOfMemory& error) {
    EXPECT_NE(std::string(error.what()).find("[64, 64]"), std::string::npos) << error.what();
  }
}

}  // namespace
}  // namespace hearth::memory_test
