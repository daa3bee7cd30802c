// SPDX-License-Identifier: Apache-2.0
// What attention costs on a device by Hearth's native kernels: launches, memory, and what recorded work draws.
#include <gtest/gtest.h>

#include <array>
#include <utility>
#include <vector>

#include "autograd/backward.h"
#include "autograd/grad_mode.h"
#include "autograd/grad_state.h"
#include "core/cuda/counters.h"
#include "core/cuda/graph.h"
#include "core/memory/memory.h"
#include "core/random.h"
#include "ops/attention/attention.h"
#include "ops/dispatch/candidates.h"
#include "ops/shape/view.h"
#include "tests/support/op_test.h"

namespace hearth::test::attention_launches_test {
namespace {

constexpr Device gpu{DeviceType::cuda};

/// Values that are unlike one another and exact in every type.
Tensor numbered(const Shape& shape, DType dtype) {
  std::vector<double> values(static_cast<std::size_t>(shape.size()));
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<double>(i * 37 % 61) / 32.0 - 0.9375;
  return Tensor::of<double>(shape, values).to(dtype).to(gpu);
}

class CudaAttention : public testing::Test {
 protected:
  void SetUp() override {
    if (device_count(DeviceType::cuda) == 0) GTEST_SKIP() << "there is no CUDA device";
  }
  template <class F>
  static cuda::Counters counted(F&& f) {
    const cuda::Counters before = cuda::counters();
    f();
    return cuda::counters() - before;
  }
};

struct Kernel {
  const char* name;
  DType dtype;
};
constexpr Kernel kernels[] = {
    {"mma", DType::bf16}, {"mma", DType::f16}, {"portable", DType::bf16}, {"portable", DType::f32}};

TEST_F(CudaAttention, IsOneLaunchAndThreeForTheGradient) {
  for (const auto& [name, dtype] : kernels) {
    SCOPED_TRACE(testing::Message() << name << " " << dtype);
    const ForceCandidate force("attention", name);
    const Tensor qkv = requires_grad(numbered({2, 70, 3 * 32}, dtype)), dy = numbered({2, 70, 32}, dtype);
    const Tensor lengths = Tensor::of<std::int32_t>({2}, {70, 33}).to(gpu);
    for (const AttentionOptions& options :
         {AttentionOptions{.causal = true}, AttentionOptions{.dropout = 0.25, .key_lengths = lengths}}) {
      Tensor y;
      EXPECT_EQ(counted([&] { y = self_attention(qkv, 2, options); }).launches, 1);
      const cuda::Counters gradient = counted([&] { backward(y, dy); });
      EXPECT_EQ(gradient.launches, 3);
      zero_grad(qkv);
    }
    EXPECT_EQ(last_choice("attention"), name);
  }
}

TEST_F(CudaAttention, RefusesMoreHeadsThanALaunchTakes) {
  // Views of one element, as so many would not fit.
  const Shape many{std::int64_t{1} << 27, 1, 16, 1};
  const Tensor x = expand(numbered({1, 1, 1, 1}, DType::f32), many), lse = numbered({1, 1, 1}, DType::f32);
  cuda::Stream& stream = cuda::stream_of(gpu);
  const kernels::AttentionArguments arguments{.q = x, .k = x, .v = x, .bias = {}, .key_lengths = {}};
  refuses<ShapeError>("attention", [&] {
    kernels::attention(stream, arguments, x, lse);
    return true;
  });
  refuses<ShapeError>("attention", [&] {
    kernels::attention_grad(stream, arguments, x, lse, x, {x, x, x, {}});
    return true;
  });
}

TEST_F(CudaAttention, TakesUnalignedAndOddHeadsByThePortableKernel) {
  (void)self_attention(numbered({1, 3, 3 * 12}, DType::bf16), 1);
  EXPECT_EQ(last_choice("attention"), "portable");
  (void)self_attention(numbered({1, 3, 3 * 16}, DType::bf16), 1);
  EXPECT_EQ(last_choice("attention"), "mma");
  const Tensor wide = numbered({1, 3, 3 * 16 + 1}, DType::bf16);
  const Tensor shifted = Tensor::view(wide.storage(), {1, 3, 3 * 16}, wide.strides(), 1, DType::bf16, gpu);
  (void)self_attention(shifted, 1);
  EXPECT_EQ(last_choice("attention"), "portable");
  // Weights that 31 bits do not count; without samples nothing is computed.
  for (const auto& [length, choice] : {std::pair<std::int64_t, const char*>{40000, "mma"}, {60000, "portable"}}) {
    const Tensor long_rows = numbered({0, length, 1, 16}, DType::bf16), lse = numbered({0, 1, length}, DType::f32);
    const kernels::AttentionArguments arguments{
        .q = long_rows, .k = long_rows, .v = long_rows, .bias = {}, .key_lengths = {}};
    kernels::attention(cuda::stream_of(gpu), arguments, long_rows, lse);
    EXPECT_EQ(last_choice("attention"), choice);
  }
  const ForceCandidate force("attention", "mma");
  refuses<UsageError>("attention", [&] { return self_attention(shifted, 1); });
  refuses<UsageError>("attention", [&] { return self_attention(numbered({1, 3, 3 * 136}, DType::bf16), 1); });
  refuses<UsageError>("attention", [&] { return self_attention(numbered({1, 3, 3 * 16}, DType::f32), 1); });
}

/// What `found` is of `exact` on the whole: rounding of many values cancels, a wrong factor does not.
double share_of(const Tensor& found, const std::vector<double>& exact) {
  const std::vector<double> values = found.to_doubles();
  double product = 0, square = 0;
  for (std::size_t i = 0; i < exact.size(); ++i) {
    product += values[i] * exact[i];
    square += exact[i] * exact[i];
  }
  return product / square;
}

TEST_F(CudaAttention, RoundingFavoursNoSide) {
  for (const auto& [name, dtype] : kernels) {
    const ForceCandidate force("attention", name);
    for (const std::int64_t width : {32, 64, 128}) {
      std::array<Tensor, 3> on_device, exact;
      for (std::size_t i = 0; i < 3; ++i) {
        std::vector<double> values(static_cast<std::size_t>(2 * 90 * 2 * width));
        Random random(3, i);
        for (double& value : values) value = random.normal();
        const Tensor rounded = Tensor::of<double>({2, 90, 2, width}, values).to(dtype);
        on_device[i] = requires_grad(rounded.to(gpu));
        exact[i] = requires_grad(rounded.to(DType::f64));
      }
      std::array<Tensor, 2> y;
      for (const bool device : {false, true}) {
        const auto& x = device ? on_device : exact;
        y[device] = attention(x[0], x[1], x[2], {.causal = true});
        backward(y[device], x[0].detach());
      }
      EXPECT_NEAR(share_of(y[1], y[0].to_doubles()), 1, 3e-4) << name << " " << dtype << " " << width;
      for (std::size_t i = 0; i < 3; ++i)
        EXPECT_NEAR(share_of(grad_of(on_device[i]), grad_of(exact[i]).to_doubles()), 1, 3e-4)
            << name << " " << dtype << " " << width << ", input " << i;
    }
  }
}

// 600 x 600 weights of 4 heads would be 5.8 MB.
TEST_F(CudaAttention, MakesNoArrayOfQueriesByKeys) {
  for (const auto& [name, dtype] : kernels) {
    const ForceCandidate force("attention", name);
    const Tensor qkv = requires_grad(numbered({1, 600, 3 * 32}, dtype)), dy = numbered({1, 600, 32}, dtype);
    (void)grad_of(qkv);
    const auto before = memory_of(gpu).statistics().in_use;
    memory_of(gpu).reset_peak();
    backward(self_attention(qkv, 4, {.causal = true}), dy);
    EXPECT_LT(memory_of(gpu).statistics().peak - before, 600000) << name << " " << dtype;
  }
}

// A replay draws for the step that it runs for, not for the one that was recorded.
TEST_F(CudaAttention, RecordedDropoutFollowsTheStep) {
  for (const auto& [name, dtype] : kernels) {
    const ForceCandidate force("attention", name);
    const Tensor q = numbered({1, 20, 2, 16}, dtype), result = Tensor::empty({1, 20, 2, 16}, dtype, gpu);
    const auto drop = [&](std::uint64_t step) {
      const RandomScope scope(9, step);
      return attention(q, q, q, {.dropout = 0.5});
    };
    cuda::Stream& stream = cuda::stream_of(gpu);
    cuda::Arena arena(gpu);
    const auto work = [&] { result.copy_from(drop(1)); };
    arena.run(work);
    const cuda::Graph graph = cuda::Graph::record(stream, arena, work);
    for (const std::uint64_t step : {5, 6}) {
      cuda::set_random_step(stream, step);
      graph.launch(stream);
      EXPECT_EQ(result.to_doubles(), drop(step).to_doubles()) << name << " " << dtype << " step " << step;
    }
  }
}

}  // namespace
}  // namespace hearth::test::attention_launches_test
