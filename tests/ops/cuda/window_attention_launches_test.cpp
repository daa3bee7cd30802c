// SPDX-License-Identifier: Apache-2.0
// What window_attention costs on a device: launches, memory, and what recorded work draws.
#include <gtest/gtest.h>

#include <vector>

#include "hearth/autograd/backward.h"
#include "hearth/autograd/grad_state.h"
#include "hearth/core/cuda/counters.h"
#include "hearth/core/cuda/graph.h"
#include "hearth/core/memory.h"
#include "hearth/core/random.h"
#include "hearth/ops/attention/window_attention.h"
#include "support/op_test.h"

namespace hearth::test {
namespace {

constexpr Device gpu{DeviceType::cuda};

/// Values that are unlike one another and exact in every type.
Tensor numbered(const Shape& shape, DType dtype) {
  std::vector<double> values(static_cast<std::size_t>(shape.size()));
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<double>(i * 37 % 61) / 32.0 - 0.9375;
  return Tensor::of<double>(shape, values).to(dtype).to(gpu);
}

class CudaWindowAttention : public testing::Test {
 protected:
  void SetUp() override {
    if (device_count(DeviceType::cuda) == 0) GTEST_SKIP() << "there is no CUDA device";
  }
};

TEST_F(CudaWindowAttention, IsOneLaunchAndTwoForTheGradient) {
  for (const DType dtype : {DType::f32, DType::bf16}) {
    const Tensor qkv = as_leaf(numbered({2, 9, 8, 48}, dtype)), dy = numbered({2, 9, 8, 16}, dtype);
    const Tensor table = as_leaf(numbered({49, 2}, DType::f32)), behind = as_leaf(numbered({48}, DType::f32));
    const cuda::Counters before = cuda::counters();
    const Tensor y = window_attention(qkv, table, {.heads = 2, .window = 4, .shift = 2, .padding = behind});
    const cuda::Counters between = cuda::counters();
    backward(y, dy);
    EXPECT_EQ((between - before).launches, 1) << dtype;
    EXPECT_EQ((cuda::counters() - between).launches, 2) << dtype;
  }
}

// Rolled, cut and padded copies, or scores kept, would be several times the inputs.
TEST_F(CudaWindowAttention, KeepsNothingButTheInputs) {
  const Tensor qkv = as_leaf(numbered({1, 28, 28, 96}, DType::f32)), table = as_leaf(numbered({169, 2}, DType::f32));
  const auto before = memory_of(gpu).statistics().in_use;
  memory_of(gpu).reset_peak();
  const Tensor y = window_attention(qkv, table, {.heads = 2, .shift = 3});
  const auto result = y.size() * 4;
  EXPECT_LT(memory_of(gpu).statistics().peak - before, result + 4096);
}

// A replay draws for the step that it runs for, not for the one that was recorded.
TEST_F(CudaWindowAttention, RecordedDropoutFollowsTheStep) {
  const Tensor qkv = numbered({1, 8, 8, 48}, DType::f32), table = numbered({49, 2}, DType::f32);
  const Tensor result = Tensor::empty({1, 8, 8, 16}, DType::f32, gpu);
  const auto drop = [&](std::uint64_t step) {
    const RandomScope scope(9, step);
    return window_attention(qkv, table, {.heads = 2, .window = 4, .shift = 2, .dropout = 0.5});
  };
  cuda::Stream& stream = cuda::stream_of(gpu);
  cuda::Arena arena(gpu);
  const auto work = [&] { result.copy_from(drop(1)); };
  arena.run(work);
  const cuda::Graph graph = cuda::Graph::record(stream, arena, work);
  for (const std::uint64_t step : {5, 6}) {
    cuda::set_random_step(stream, step);
    graph.launch(stream);
    EXPECT_EQ(result.to_doubles(), drop(step).to_doubles()) << "step " << step;
  }
}

}  // namespace
}  // namespace hearth::test
