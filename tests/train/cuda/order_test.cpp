// SPDX-License-Identifier: Apache-2.0
// What feed.h, staging.h, graph.h and memory.h promise about the order of work, under many orders where the GPU is the
// emulated one.
#include <gtest/gtest.h>

#include <algorithm>
#include <optional>
#include <vector>

#include "core/cuda/graph.h"
#include "core/cuda/memory.h"
#include "core/cuda/staging.h"
#include "core/cuda/stream.h"
#include "core/cuda/transfer.h"
#include "core/tensor.h"
#include "tests/support/error_message.h"
#include "tests/support/stream_policies.h"
#include "train/step/cuda/feed.h"

namespace hearth::order_test {
namespace {

using test::under_every_stream_policy;
constexpr Device gpu{DeviceType::cuda, 0};

class CudaOrder : public testing::Test {
 protected:
  void SetUp() override {
    if (cuda::device_count() == 0) GTEST_SKIP() << cuda::why_no_device();
  }
  cuda::Stream& stream() { return cuda::stream_of(gpu); }
};

// Row `row` of a matrix.
Tensor row_of(const Tensor& x, std::int64_t row) {
  const Shape shape{x.dim(1)};
  return Tensor::view(x.storage(), shape, contiguous_strides(shape), row * x.dim(1), x.dtype(), x.device());
}

std::vector<double> numbered(std::int64_t rows, std::int64_t cols) {
  std::vector<double> values;
  for (std::int64_t row = 0; row < rows; ++row)
    for (std::int64_t c = 0; c < cols; ++c) values.push_back(static_cast<double>(100 * row + c));
  return values;
}

TEST_F(CudaOrder, EveryStepGetsWhatWasFedForIt) {
  constexpr std::int64_t steps = 7, cols = 37;
  const Tensor all = Tensor::of<double>({steps, cols}, numbered(steps, cols));
  under_every_stream_policy([&] {
    const std::vector<Tensor> targets = {Tensor::empty({cols}, DType::f32, gpu),
                                         Tensor::empty({cols}, DType::i64, gpu)};
    const Tensor seen = Tensor::empty({steps, cols}, DType::f32, gpu);
    const Tensor labels = Tensor::empty({steps, cols}, DType::i64, gpu);
    // One pair of parts for all steps: send() promises that they may be changed when it returns.
    const std::vector<Tensor> parts = {Tensor::empty({cols}, DType::f32), Tensor::empty({cols}, DType::i64)};
    cuda::Feed feed(gpu);
    for (std::int64_t step = 0; step < steps; ++step) {
      for (const Tensor& part : parts) part.copy_from(row_of(all, step).to(part.dtype()));
      feed.send(parts, targets);
      row_of(seen, step).copy_from(targets[0]);
      row_of(labels, step).copy_from(targets[1]);
    }
    EXPECT_EQ(seen.to_doubles(), numbered(steps, cols));
    EXPECT_EQ(labels.to_doubles(), numbered(steps, cols));
  });
}

// A feed's memory may have been another tensor's, which queued work still reads.
TEST_F(CudaOrder, AFeedSparesWhatItsMemoryHeldBefore) {
  under_every_stream_policy([&] {
    cuda::Arena arena(gpu);
    arena.run([&] {
      const Tensor target = Tensor::empty({64}, DType::f32, gpu), kept = Tensor::empty({2, 256}, DType::u8, gpu);
      {
        const Tensor before[] = {Tensor::full({256}, 7, DType::u8, gpu), Tensor::full({256}, 9, DType::u8, gpu)};
        for (std::int64_t i = 0; i < 2; ++i) row_of(kept, i).copy_from(before[i]);
      }
      cuda::Feed feed(gpu);
      const Tensor part = Tensor::full({64}, -1);
      feed.send({&part, 1}, {&target, 1});
      feed.send({&part, 1}, {&target, 1});
      std::vector<double> expected(512, 7);
      std::fill(expected.begin() + 256, expected.end(), 9);
      EXPECT_EQ(kept.to_doubles(), expected);
    });
  });
}

TEST_F(CudaOrder, AFeedMayGoBeforeItsLastSetHasArrived) {
  under_every_stream_policy([&] {
    const Tensor target = Tensor::zeros({64}, DType::f32, gpu);
    {
      cuda::Feed feed(gpu);
      const Tensor part = Tensor::full({64}, 5);
      feed.send({&part, 1}, {&target, 1});
    }
    // Takes the memory that the feed gave back.
    const Tensor next = Tensor::full({256}, 3, DType::u8, gpu), after = Tensor::full({256}, 4, DType::u8, gpu);
    EXPECT_EQ(target.to_doubles(), std::vector<double>(64, 5));
    EXPECT_EQ(next.to_doubles(), std::vector<double>(256, 3));
    EXPECT_EQ(after.to_doubles(), std::vector<double>(256, 4));
  });
}

TEST_F(CudaOrder, StagedValuesArriveHoweverManyAreUnderWay) {
  // Slots are used again after 1024 values.
  constexpr std::int64_t count = 3000;
  under_every_stream_policy([&] {
    const Tensor arrived = Tensor::zeros({count}, DType::i64, gpu);
    std::vector<double> expected;
    for (std::int64_t i = 0; i < count; ++i) {
      cuda::stage(stream(), arrived.data<std::int64_t>() + i, &i, sizeof i);
      expected.push_back(static_cast<double>(i));
    }
    EXPECT_EQ(arrived.to_doubles(), expected);
  });
}

// A step through memory of its own, replayed while its inputs come by the feed.
TEST_F(CudaOrder, ReplaysUseTheArenaAndTheFeed) {
  constexpr std::int64_t steps = 6, cols = 37;
  under_every_stream_policy([&] {
    const Tensor input = Tensor::zeros({cols}, DType::f32, gpu), output = Tensor::empty({cols}, DType::f32, gpu);
    const Tensor seen = Tensor::empty({steps, cols}, DType::f32, gpu);
    cuda::Arena arena(gpu);
    const auto work = [&] { output.copy_from(input.to(DType::f64).to(DType::f32)); };
    arena.run(work);
    cuda::Feed feed(gpu);
    std::optional<cuda::Graph> graph = cuda::Graph::record(stream(), arena, work);
    EXPECT_EQ(graph->nodes(), 5);
    // What recorded work allocates is handed out to nobody else.
    const Tensor others[] = {Tensor::full({cols}, -1, DType::f64, gpu), Tensor::full({cols}, -2, DType::f32, gpu)};
    const Tensor all = Tensor::of<double>({steps, cols}, numbered(steps, cols)).to(DType::f32);
    for (std::int64_t step = 0; step < steps; ++step) {
      const Tensor part = row_of(all, step);
      feed.send({&part, 1}, {&input, 1});
      graph->launch(stream());
      row_of(seen, step).copy_from(output);
    }
    EXPECT_EQ(seen.to_doubles(), numbered(steps, cols));
    EXPECT_EQ(others[0].to_doubles(), std::vector<double>(cols, -1));
    EXPECT_EQ(others[1].to_doubles(), std::vector<double>(cols, -2));
  });
}

// The number of the step is read when a replay runs, not when it was recorded.
TEST_F(CudaOrder, EachReplayReadsItsOwnRandomStep) {
  under_every_stream_policy([&] {
    const Tensor cell = Tensor::zeros({1}, DType::i64, gpu), seen = Tensor::zeros({5, 1}, DType::i64, gpu);
    cuda::Arena arena(gpu);
    const auto work = [&] {
      const std::uint64_t* const step = cuda::recorded_random_step(stream());
      if (step != nullptr) cuda::copy_within(stream(), cell.bytes(), step, sizeof *step);
    };
    const cuda::Graph graph = cuda::Graph::record(stream(), arena, work);
    for (std::int64_t i = 0; i < 5; ++i) {
      cuda::set_random_step(stream(), static_cast<std::uint64_t>(100 * i));
      graph.launch(stream());
      row_of(seen, i).copy_from(cell);
    }
    EXPECT_EQ(seen.to_doubles(), numbered(5, 1));
  });
}

// An arena gives its memory back, which nobody else may use before its work is done.
TEST_F(CudaOrder, AnArenaMayGoWhileItsWorkIsQueued) {
  under_every_stream_policy([&] {
    const Tensor input = Tensor::full({64}, 3, DType::f32, gpu), output = Tensor::zeros({64}, DType::f32, gpu);
    {
      cuda::Arena arena(gpu);
      arena.run([&] { output.copy_from(input.to(DType::f64).to(DType::f32)); });
    }
    const Tensor next = Tensor::full({64}, 4, DType::f64, gpu);
    EXPECT_EQ(output.to_doubles(), std::vector<double>(64, 3));
    EXPECT_EQ(next.to_doubles(), std::vector<double>(64, 4));
  });
}

// Memory that came with a recording would not be there when the arena hands it out again.
TEST_F(CudaOrder, ARecordingTakesNoMemoryOfTheDriver) {
  for (const bool pool : {true, false}) {
    const std::unique_ptr<MemoryResource> memory = cuda::make_memory(gpu, pool);
    const DeviceMemoryScope scope(gpu, *memory);
    cuda::Arena arena(gpu);
    const auto work = [] { (void)Tensor::full({64}, 3, DType::f32, gpu); };
    const std::string message =
        test::error_message<DeviceError>([&] { (void)cuda::Graph::record(stream(), arena, work); });
    EXPECT_PRED2(test::contains, message, "memory beyond what the step took before") << (pool ? "pool" : "driver");
    EXPECT_EQ(memory->statistics().in_use, 0);
    arena.run([] { EXPECT_EQ(Tensor::full({64}, 3, DType::f32, gpu).to_doubles(), std::vector<double>(64, 3)); });
    EXPECT_NO_THROW((void)cuda::Graph::record(stream(), arena, work));
  }
}

// The driver need not wait for what still uses the memory that it gets back.
TEST_F(CudaOrder, APoolMayGoWhileItsMemoryIsInUse) {
  under_every_stream_policy([&] {
    const Tensor input = Tensor::full({64}, 3, DType::f32, gpu), output = Tensor::zeros({64}, DType::f32, gpu);
    {
      const std::unique_ptr<MemoryResource> memory = cuda::make_memory(gpu, true);
      const DeviceMemoryScope scope(gpu, *memory);
      output.copy_from(input.to(DType::f64).to(DType::f32));
    }
    EXPECT_EQ(output.to_doubles(), std::vector<double>(64, 3));
  });
}

}  // namespace
}  // namespace hearth::order_test
