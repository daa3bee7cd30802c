// SPDX-License-Identifier: Apache-2.0
// The way of batches to a CUDA device: what is fed arrives where a step reads it, under any order of the streams that
// is legal, and the copy of the next batch does not wait for the step before it.
#include "train/step/cuda/feed.h"

#include <gtest/gtest.h>

#include <cstring>

#include "core/build.h"
#include "core/cuda/counters.h"
#include "core/error.h"
#include "core/memory/memory.h"
#include "data/loading/stages.h"

#if HEARTH_CUDA_EMULATED
#include "tests/core/cuda/emulated_gpu/runtime_fixture.h"
#endif

namespace hearth::feed_test {
namespace {

constexpr Device gpu{DeviceType::cuda, 0};

class CudaFeed : public ::testing::Test {
 protected:
  void SetUp() override {
    if (cuda::device_count() == 0) GTEST_SKIP() << cuda::why_no_device();
  }
};

// A batch of two parts whose values tell which it is.
std::vector<Tensor> batch(int number) {
  return {Tensor::full({3, 50}, 1.0 + number), Tensor::full({7}, 100.0 + number, DType::i64)};
}

std::vector<Tensor> targets() { return {Tensor::zeros({3, 50}, DType::f32, gpu), Tensor::zeros({7}, DType::i64, gpu)}; }

TEST_F(CudaFeed, BringsEachBatchToTheTargets) {
  const std::vector<Tensor> places = targets();
  cuda::Feed feed(gpu);
  const cuda::Counters before = cuda::counters();
  for (int number = 0; number < 6; ++number) {
    const std::vector<Tensor> parts = batch(number);
    feed.send(parts, places);
    // The caller's memory is free again at once.
    for (const Tensor& part : parts) part.fill_(-1);
    EXPECT_EQ(places[0].to_doubles(), batch(number)[0].to_doubles());
    EXPECT_EQ(places[1].to_doubles(), batch(number)[1].to_doubles());
  }
  EXPECT_EQ((cuda::counters() - before).copies_in, 12);
}

TEST_F(CudaFeed, CountsAsCopying) {
  data::StageClock clock;
  const data::StageClock::Use use(clock);
  cuda::Feed feed(gpu);
  EXPECT_EQ(clock.times()[data::Stage::copy], 0);
  feed.send(batch(0), targets());
  EXPECT_GT(clock.times()[data::Stage::copy], 0);
  EXPECT_EQ(clock.activity().stage, data::Stage::room);
}

TEST_F(CudaFeed, TakesSetsOfAnySize) {
  cuda::Feed feed(gpu);
  for (const std::int64_t rows : {3, 40, 0, 2, 41, 41, 500, 1}) {
    const Tensor part = Tensor::full({rows, 5}, 1.0 * static_cast<double>(rows), DType::bf16),
                 place = Tensor::zeros({rows, 5}, DType::bf16, gpu);
    feed.send({&part, 1}, {&place, 1});
    EXPECT_EQ(place.to_doubles(), part.to_doubles());
  }
  feed.send({}, {});
}

TEST_F(CudaFeed, BringsThemFromPageableMemoryToo) {
  const std::vector<Tensor> places = targets();
  cuda::Feed feed(gpu, false);
  const cuda::Counters before = cuda::counters();
  for (int number = 0; number < 6; ++number) {
    const std::vector<Tensor> parts = batch(number);
    feed.send(parts, places);
    for (const Tensor& part : parts) part.fill_(-1);
    EXPECT_EQ(places[0].to_doubles(), batch(number)[0].to_doubles());
    EXPECT_EQ(places[1].to_doubles(), batch(number)[1].to_doubles());
  }
  const cuda::Counters spent = cuda::counters() - before;
  EXPECT_EQ(spent.copies_in, 12);
  EXPECT_GE(spent.pageable_copies, 12) << "those to the host to look at are pageable, too";
  EXPECT_EQ(spent.copies_within, 0) << "nothing arrives elsewhere first";
}

TEST_F(CudaFeed, RefusesWhatDoesNotFit) {
  EXPECT_THROW(cuda::Feed(Device{}), DeviceError);
  cuda::Feed feed(gpu);
  Strides down{};
  down[0] = 50;
  const std::vector<Tensor> places = targets();
  const Tensor column = Tensor::view(places[0].storage(), {3}, down, 0, DType::f32, gpu), three = Tensor::zeros({3});
  EXPECT_THROW(feed.send({&three, 1}, {&column, 1}), ShapeError);
  EXPECT_THROW(feed.send({&three, 1}, {&three, 1}), DeviceError);
  EXPECT_THROW(feed.send({&places[0], 1}, {&places[0], 1}), DeviceError);
  std::vector<Tensor> parts = batch(0);
  EXPECT_THROW(feed.send(std::span(parts).first(1), places), UsageError);
  parts[1] = Tensor::zeros({8}, DType::i64);
  EXPECT_THROW(feed.send(parts, places), ShapeError);
  parts[1] = Tensor::zeros({7}, DType::f32);
  EXPECT_THROW(feed.send(parts, places), ShapeError);
}

#if HEARTH_CUDA_EMULATED

// Remembers what was handed out, in order.
class RememberedMemory : public MemoryResource {
 public:
  explicit RememberedMemory(MemoryResource& below) : below_(below) {}
  void* allocate(std::size_t bytes) override {
    blocks.push_back(static_cast<std::byte*>(below_.allocate(bytes)));
    return blocks.back();
  }
  void deallocate(void* pointer, std::size_t bytes) noexcept override { below_.deallocate(pointer, bytes); }
  MemoryStatistics statistics() const override { return below_.statistics(); }
  void reset_peak() override { below_.reset_peak(); }

  std::vector<std::byte*> blocks;

 private:
  MemoryResource& below_;
};

class CudaFeedOrder : public cuda::emulate::test::RuntimeTest {};

TEST_F(CudaFeedOrder, TheNextCopyGoesAheadOfTheStepAndNeverIntoIt) {
  using cuda::emulate::StreamPolicy;
  int ahead = 0;
  for (const StreamPolicy& policy : cuda::emulate::test::all_policies()) {
    cuda::emulate::test::use_streams(policy);
    RememberedMemory memory(memory_of(gpu));
    const std::vector<Tensor> places = targets();
    std::unique_ptr<cuda::Feed> feed;
    {
      const DeviceMemoryScope scope(gpu, memory);
      feed = std::make_unique<cuda::Feed>(gpu);
    }
    for (int set = 0; set < 2; ++set) feed->send(batch(-1), places);
    ASSERT_EQ(memory.blocks.size(), 2u) << "the two sets of the feed";
    const auto first_value = [](const void* at) {
      float value = 0;
      std::memcpy(&value, at, sizeof(value));
      return value;
    };
    constexpr int steps = 4;
    std::vector<float> seen(steps);
    for (int step = 0; step < steps; ++step) {
      feed->send(batch(step), places);
      const std::byte *place = places[0].bytes(), *next = memory.blocks[static_cast<std::size_t>(step + 1) % 2];
      // Stands for the last kernel of the step.
      cuda::emulate::enqueue_work(cuda::stream_of(gpu).raw(), "step", [&, place, next, step] {
        seen[static_cast<std::size_t>(step)] = first_value(place);
        ahead += first_value(next) == static_cast<float>(2 + step);
      });
    }
    cuda::stream_of(gpu).wait();
    EXPECT_EQ(seen, (std::vector<float>{1, 2, 3, 4})) << cuda::emulate::test::name_of(policy);
  }
  EXPECT_GT(ahead, 0) << "no order lets the next batch arrive before the step ends";
}

#endif

}  // namespace
}  // namespace hearth::feed_test
