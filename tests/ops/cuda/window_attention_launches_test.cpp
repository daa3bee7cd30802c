// SPDX-License-Identifier: Apache-2.0
// What window_attention costs on a device: launches, memory, and what recorded work draws.
#include <gtest/gtest.h>

#include <cstdlib>
#include <string>
#include <vector>

#include "autograd/backward.h"
#include "autograd/grad_state.h"
#include "core/cuda/counters.h"
#include "core/cuda/graph.h"
#include "core/memory/memory.h"
#include "core/random.h"
#include "ops/attention/window_attention.h"
#include "ops/attention/window_kernels.h"
#include "ops/dispatch/candidates.h"
#include "ops/shape/view.h"
#include "tests/support/error_message.h"
#include "tests/support/op_test.h"

namespace hearth::test::window_attention_launches_test {
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
    const Tensor qkv = requires_grad(numbered({2, 9, 8, 48}, dtype)), dy = numbered({2, 9, 8, 16}, dtype);
    const Tensor table = requires_grad(numbered({49, 2}, DType::f32)),
                 behind = requires_grad(numbered({48}, DType::f32));
    const cuda::Counters before = cuda::counters();
    const Tensor y = window_attention(qkv, table, {.heads = 2, .window = 4, .shift = 2, .padding = behind});
    const cuda::Counters between = cuda::counters();
    backward(y, dy);
    EXPECT_EQ((between - before).launches, 1) << dtype;
    EXPECT_EQ((cuda::counters() - between).launches, 2) << dtype;
    EXPECT_EQ(last_choice("window_attention"), dtype == DType::f32 ? "portable" : "mma");
  }
}

TEST_F(CudaWindowAttention, TakesNoMoreWindowsThanALaunchHasBlocks) {
  // One window, which is not there twice.
  const Tensor qkv = expand(numbered({1, 1, 1, 3}, DType::f32), {std::int64_t{1} << 31, 1, 1, 3});
  const kernels::WindowAttentionArguments arguments{
      .qkv = qkv, .table = numbered({1, 1}, DType::f32), .padding = {}, .grid = {1, 1, 1, 0}};
  refuses<ShapeError>("window_attention", [&] {
    kernels::window_attention_portable(cuda::stream_of(gpu), arguments, numbered({1, 1, 1, 1}, DType::f32));
  });
}

/// What `found` is of `exact` on the whole: rounding of many values cancels, a wrong factor does not.
double share_of(const Tensor& found, const Tensor& exact) {
  const std::vector<double> values = found.to_doubles(), right = exact.to_doubles();
  double product = 0, square = 0;
  for (std::size_t i = 0; i < right.size(); ++i) {
    product += values[i] * right[i];
    square += right[i] * right[i];
  }
  return product / square;
}

// The last case has two windows for each block, one after the other.
TEST_F(CudaWindowAttention, RoundingFavoursNoSide) {
  struct Case {
    std::int64_t window, height, width, heads, head_width;
  };
  for (const DType dtype : {DType::f16, DType::bf16})
    for (const Case& c : {Case{4, 10, 16, 2, 32}, {7, 10, 16, 2, 32}, {12, 10, 16, 2, 32}, {9, 9, 67 * 9, 1, 40}}) {
      if (c.heads == 1 && dtype == DType::f16) continue;
      const std::int64_t entries = (2 * c.window - 1) * (2 * c.window - 1), channels = c.heads * c.head_width;
      std::vector<std::vector<Tensor>> results;
      for (const bool device : {true, false}) {
        Random random(3, 1);
        std::vector<Tensor> leaves;
        for (const Shape& shape :
             {Shape{2, c.height, c.width, 3 * channels}, Shape{entries, c.heads}, Shape{3 * channels}}) {
          std::vector<double> values(static_cast<std::size_t>(shape.size()));
          for (double& value : values) value = random.normal();
          const Tensor rounded = Tensor::of<double>(shape, values).to(dtype);
          const DType wide = leaves.empty() ? dtype : DType::f32;
          leaves.push_back(requires_grad(device ? rounded.to(wide).to(gpu) : rounded.to(DType::f64)));
        }
        const Tensor y = window_attention(leaves[0], leaves[1],
                                          {.heads = c.heads, .window = c.window, .shift = 3, .padding = leaves[2]});
        backward(y, slice(leaves[0].detach(), 3, 0, channels).contiguous());
        EXPECT_EQ(last_choice("window_attention"), device ? "mma" : "portable");
        results.push_back({y.detach(), grad_of(leaves[1])});
        if (c.width % c.window != 0) results.back().push_back(grad_of(leaves[2]));
        for (const std::int64_t part : {0, 1, 2})
          results.back().push_back(slice(grad_of(leaves[0]), 3, part * channels, (part + 1) * channels).contiguous());
      }
      ASSERT_EQ(results[0].size(), results[1].size());
      for (std::size_t i = 0; i < results[0].size(); ++i)
        EXPECT_NEAR(share_of(results[0][i], results[1][i]), 1, 4e-4) << dtype << ", window " << c.window << ", " << i;
    }
}

// What does not fit says so before anything is computed, also where only the gradient would not.
TEST_F(CudaWindowAttention, GoesByTheSharedMemoryOfTheDevice) {
  if (cuda::device_info(gpu).name.find("emulated") == std::string::npos) GTEST_SKIP() << "needs the emulated GPU";
  const auto run = [](DType dtype, std::int64_t width, std::int64_t window) {
    const Tensor table = Tensor::zeros({(2 * window - 1) * (2 * window - 1), 1}, dtype, gpu);
    window_attention(Tensor::zeros({1, window, window, 3 * width}, dtype, gpu), table, {.window = window});
    return last_choice("window_attention");
  };
  const auto refused = [&](DType dtype, std::int64_t width, std::int64_t window, const char* bytes) {
    const std::int64_t launches = cuda::counters().launches;
    const std::string message = error_message<UsageError>([&] { run(dtype, width, window); });
    EXPECT_NE(message.find(bytes), std::string::npos) << message;
    EXPECT_NE(message.find("use smaller windows, more heads"), std::string::npos) << message;
    return cuda::counters().launches - launches;
  };
  EXPECT_EQ(run(DType::bf16, 32, 12), "mma");
  EXPECT_EQ(run(DType::f64, 32, 12), "portable");
  // Forward alone fits 11 x 11.
  EXPECT_EQ(refused(DType::f64, 64, 11, "portable: windows of 11 with heads of 64 channels, f64, take 270256 bytes"),
            0);
  struct Limit {
    explicit Limit(const char* kilobytes) { setenv("HEARTH_EMULATE_SHARED_KB", kilobytes, 1); }
    ~Limit() { unsetenv("HEARTH_EMULATE_SHARED_KB"); }
  } const limit("99");
  EXPECT_EQ(run(DType::bf16, 32, 12), "portable");
  EXPECT_EQ(run(DType::bf16, 32, 8), "mma");
  EXPECT_EQ(refused(DType::f32, 64, 12, "this device has 101376"), 0);
}

// Rolled, cut and padded copies, or scores kept, would be several times the inputs.
TEST_F(CudaWindowAttention, KeepsNothingButTheInputs) {
  const Tensor qkv = requires_grad(numbered({1, 28, 28, 96}, DType::f32)),
               table = requires_grad(numbered({169, 2}, DType::f32));
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
}  // namespace hearth::test::window_attention_launches_test
