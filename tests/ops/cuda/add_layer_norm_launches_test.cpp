// SPDX-License-Identifier: Apache-2.0
// What residual, dropout and layer normalisation in one cost on a device, and what recorded work draws.
#include <gtest/gtest.h>

#include <vector>

#include "autograd/backward.h"
#include "autograd/grad_state.h"
#include "core/cuda/counters.h"
#include "core/cuda/graph.h"
#include "core/random.h"
#include "ops/norm/add_layer_norm.h"
#include "ops/pointwise/operators.h"

namespace hearth::add_layer_norm_launches_test {
namespace {

constexpr Device gpu{DeviceType::cuda, 0};

class CudaAddLayerNorm : public testing::Test {
 protected:
  void SetUp() override {
    if (device_count(DeviceType::cuda) == 0) GTEST_SKIP() << "there is no CUDA device";
  }
};

// The gradient of the parameters takes one more, which adds their shares.
TEST_F(CudaAddLayerNorm, IsOneLaunchAndTwoForTheGradient) {
  for (const DType dtype : {DType::f32, DType::bf16}) {
    const Tensor x = requires_grad(Tensor::full({4, 64}, 1.0, dtype, gpu)),
                 f = requires_grad(Tensor::full({4, 64}, 2.0, dtype, gpu));
    const Tensor gamma = requires_grad(Tensor::full({64}, 1.0, DType::f32, gpu)),
                 beta = requires_grad(gamma.detach().clone());
    const Tensor dy = Tensor::full({4, 64}, 1.0, dtype, gpu);
    // So that their first contributions are written in place, as by a trainer.
    for (const Tensor& leaf : {x, f, gamma, beta}) (void)grad_of(leaf), zero_grad(leaf);
    const cuda::Counters start = cuda::counters();
    const SumAndNorm result = add_layer_norm(x, f, gamma, beta, {.dropout = 0.25, .drop_path = 0.5});
    const cuda::Counters middle = cuda::counters();
    EXPECT_EQ((middle - start).launches, 1);
    backward(result.y, dy);
    const cuda::Counters gradient = cuda::counters() - middle;
    EXPECT_EQ(gradient.launches, 2);
  }
}

TEST_F(CudaAddLayerNorm, ARecordedStepDrawsByItsNumber) {
  const Tensor x = Tensor::full({5, 96}, 1.0, DType::f32, gpu), f = Tensor::full({5, 96}, 2.0, DType::f32, gpu);
  const Tensor gamma = requires_grad(Tensor::full({96}, 1.0, DType::f32, gpu)),
               beta = Tensor::zeros({96}, DType::f32, gpu);
  const Tensor part = requires_grad(f), places = Tensor::empty({2, 5, 96}, DType::f32, gpu);
  const auto place = [&](std::int64_t i) {
    return Tensor::view(places.storage(), {5, 96}, {96, 1}, i * 5 * 96, DType::f32, gpu);
  };
  const auto step = [&](std::uint64_t number) {
    const RandomScope random(9, number);
    zero_grad(part);
    const SumAndNorm result = add_layer_norm(x, part, gamma, beta, {.dropout = 0.5, .drop_path = 0.5});
    backward(result.sum * result.y, x);
    place(0).copy_from(result.y.detach());
    place(1).copy_from(grad_of(part));
  };
  // Not of the arena, which goes first.
  for (const Tensor& leaf : {part, gamma}) (void)grad_of(leaf);
  cuda::Stream& stream = cuda::stream_of(gpu);
  cuda::Arena arena(gpu);
  arena.run([&] { step(1); });
  const cuda::Graph graph = cuda::Graph::record(stream, arena, [&] { step(1); });
  for (const std::uint64_t number : {4u, 5u}) {
    cuda::set_random_step(stream, number);
    graph.launch(stream);
    const std::vector<double> replayed = places.to_doubles();
    step(number);
    EXPECT_EQ(replayed, places.to_doubles()) << number;
  }
}

}  // namespace
}  // namespace hearth::add_layer_norm_launches_test
