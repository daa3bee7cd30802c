// SPDX-License-Identifier: Apache-2.0
// What a trace at two batch sizes says of a third, and what a report of failure names.
#include "train/memory/memory_trace.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "core/error.h"
#include "core/tensor.h"

namespace hearth::memory_trace_test {
namespace {

// A step whose largest moment depends on the batch: a filter's workspace of fixed size while `image` is there, or two
// further blocks of the size of the batch.
void work(std::int64_t batch) {
  const OriginScope of_step = OriginScope::of_layer("net");
  const Tensor image = Tensor::empty({batch, 1000}, DType::u8);
  {
    const OriginScope origin = OriginScope::of_op("filter");
    const Tensor workspace = Tensor::empty({20000}, DType::u8);
  }
  const OriginScope origin({"pool", "net.pool", true});
  const Tensor a = Tensor::empty({batch, 500}, DType::u8), b = Tensor::empty({batch, 700}, DType::u8);
}

template <class Work>
void trace(MemoryTrace& into, Work&& f) {
  const MemoryObserverScope scope(into);
  f();
}

BatchTrace traced(std::int64_t small, std::int64_t large) {
  MemoryTrace first{Device{}}, second{Device{}};
  trace(first, [&] { work(small); });
  trace(second, [&] { work(large); });
  return BatchTrace(first, small, second, large);
}

TEST(BatchTrace, FindsThePeakWhereverItIsAtThatBatch) {
  const BatchTrace law = traced(2, 3);
  EXPECT_TRUE(law.matched());
  for (const std::int64_t batch : {1, 7, 16}) {
    EXPECT_EQ(law.peak(batch).bytes, 1000 * batch + 20000) << batch;
    EXPECT_STREQ(law.peak(batch).origin.op, "filter");
  }
  for (const std::int64_t batch : {17, 100, 4096}) {
    EXPECT_EQ(law.peak(batch).bytes, 2200 * batch) << batch;
    EXPECT_STREQ(law.peak(batch).origin.op, "pool");
  }
}

TEST(BatchTrace, CountsWhatIsHeldWhenTheBackwardPassBegins) {
  const BatchTrace law = traced(2, 3);
  EXPECT_EQ(law.kept(10), 10000);
  EXPECT_EQ(law.saved_by_layer(10), (std::map<std::string, std::int64_t>{{"net", 10000}}));
}

TEST(BatchTrace, ReplayTakesAndGivesBackTheSame) {
  const BatchTrace law = traced(2, 3);
  const auto pool = make_imagined_pool(DeviceType::cuda);
  const auto counting = make_counting_memory(*pool);
  law.replay(*counting, 100);
  EXPECT_EQ(counting->statistics().peak, law.peak(100).bytes);
  EXPECT_EQ(counting->statistics().in_use, 0);
  EXPECT_EQ(pool->statistics().reserved, static_cast<std::int64_t>(min_cuda_region - pool_granule));
  const auto limited = make_limited_memory(*pool, law.peak(100).bytes - 1);
  EXPECT_THROW(law.replay(*limited, 100), OutOfMemory);
  EXPECT_EQ(limited->statistics().in_use, 0);
}

TEST(ImaginedPool, OfADeviceHasWhatTheDeviceHas) {
  const std::int64_t half = std::int64_t{min_cuda_region} / 2;
  const auto pool = make_imagined_pool(DeviceType::cuda, 3 * half);
  void* const first = pool->allocate(min_cuda_region - pool_granule);
  void* const second = pool->allocate(std::size_t(half) - pool_granule);
  EXPECT_LE(pool->statistics().reserved, 3 * half);
  EXPECT_THROW(pool->allocate(std::size_t(half)), OutOfMemory);
  pool->deallocate(first, min_cuda_region - pool_granule);
  pool->deallocate(second, std::size_t(half) - pool_granule);
  EXPECT_NO_THROW(pool->deallocate(pool->allocate(std::size_t(2 * half)), std::size_t(2 * half)))
      << "free regions went back";
}

TEST(BatchTrace, StepsThatDifferSaySoAndCountInFull) {
  MemoryTrace first{Device{}}, second{Device{}};
  trace(first, [] { work(2); });
  trace(second, [] {
    const OriginScope origin = OriginScope::of_op("only in large ones");
    const Tensor more = Tensor::empty({4, 5000}, DType::u8);
    work(4);
  });
  const BatchTrace law(first, 2, second, 4);
  EXPECT_FALSE(law.matched());
  EXPECT_EQ(law.peak(100).bytes, 5000 * 100 + 2200 * 100);
}

TEST(BatchTrace, WantsTheSmallerFirst) {
  const MemoryTrace none{Device{}};
  EXPECT_THROW(BatchTrace(none, 4, none, 4), UsageError);
  EXPECT_THROW(BatchTrace(none, 0, none, 4), UsageError);
}

TEST(MemoryTrace, SeesBlocksOfBeforeGo) {
  Tensor before = Tensor::empty({100}, DType::u8);
  MemoryTrace seen{Device{}};
  trace(seen, [&] {
    before = {};
    const Tensor other = Tensor::empty({50}, DType::u8);
  });
  ASSERT_EQ(seen.events().size(), 3u);
  EXPECT_FALSE(seen.events()[0].taken);
  EXPECT_LT(seen.events()[0].block, 0);
  EXPECT_EQ(seen.events()[0].bytes, 100);
  EXPECT_EQ(seen.events()[2].block, seen.events()[1].block);
}

TEST(PoolOverBlocks, IsCountedAndLimitedWithTheRest) {
  const auto below = make_pool_memory();
  const auto limited = make_limited_memory(*below, 3 << 20);
  const auto pool = make_pool_memory(*limited, std::size_t{2} << 20);
  void* const a = pool->allocate(1000);
  EXPECT_EQ(limited->statistics().in_use, 2 << 20);
  // A comfortable region does not fit, but the block itself does.
  void* const b = pool->allocate(std::size_t{2} << 20 >> 1);
  void* const c = pool->allocate((std::size_t{1} << 20) - pool_granule);
  EXPECT_EQ(limited->statistics().in_use, 3 << 20);
  EXPECT_THROW(pool->allocate(std::size_t{1} << 20), OutOfMemory);
  for (void* const block : {a, b, c}) pool->deallocate(block, 0);
}

TEST(OutOfMemoryReport, NamesWhoAskedAndWhatIsLargest) {
  const auto pool = make_pool_memory();
  const auto limited = make_limited_memory(*pool, 1 << 20);
  const auto reporting = make_reporting_memory(*limited, Device{});
  const MemoryScope scope(*reporting);
  const OriginScope layer = OriginScope::of_layer(lasting_text("stage2.conv1"));
  std::vector<Tensor> held;
  {
    const OriginScope origin = OriginScope::of_op("relu");
    for (const std::int64_t k : {10, 400, 30, 20, 50, 40}) held.push_back(Tensor::empty({k, 1024}, DType::u8));
  }
  try {
    const OriginScope origin({"conv2d", current_origin().layer, true});
    (void)Tensor::empty({7, 1 << 20}, DType::f32);
    FAIL() << "the limit was not seen";
  } catch (const OutOfMemory& error) {
    const std::string text = error.what(), first = text.substr(0, text.find('\n'));
    for (const char* part : {"f32 [7, 1048576]", "conv2d (backward) of stage2.conv1", "29360128 bytes asked",
                             "563200 in use", "limit of 1048576 bytes"})
      EXPECT_NE(first.find(part), std::string::npos) << part << "\n" << text;
    EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 6) << text;
    EXPECT_NE(text.find("409600 bytes, u8 [400, 1024], made by relu of stage2.conv1"), std::string::npos) << text;
    EXPECT_LT(text.find("[400, 1024]"), text.find("[50, 1024]")) << text;
    EXPECT_EQ(text.find("[10, 1024]"), std::string::npos) << "the sixth in size:\n" << text;
  }
}

TEST(Storages, AreListedWhileTheyLive) {
  const auto listed = [](std::int64_t rows) {
    for (const StorageRecord& record : largest_storages(Device{}, 1000000))
      if (record.shape == Shape{rows, 12347}) return true;
    return false;
  };
  std::vector<Tensor> tensors;
  for (std::int64_t rows = 1; rows <= 5; ++rows) tensors.push_back(Tensor::empty({rows, 12347}));
  // One from the middle, the one beside it, the first of the chain.
  for (const std::int64_t gone : {3, 2, 5}) {
    EXPECT_TRUE(listed(gone));
    tensors[static_cast<std::size_t>(gone - 1)] = {};
    EXPECT_FALSE(listed(gone));
  }
  EXPECT_TRUE(listed(1));
  EXPECT_TRUE(listed(4));
}

}  // namespace
}  // namespace hearth::memory_trace_test
