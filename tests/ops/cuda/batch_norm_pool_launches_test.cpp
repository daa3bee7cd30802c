// SPDX-License-Identifier: Apache-2.0
// What norm, ReLU and max pooling as one op save of launches and bytes.
#include <gtest/gtest.h>

#include <utility>

#include "autograd/backward.h"
#include "autograd/grad_state.h"
#include "core/cuda/counters.h"
#include "ops/norm/batch_norm_pool.h"
#include "tests/support/op_test.h"

namespace hearth::test::batch_norm_pool_launches_test {
namespace {

TEST(CudaBatchNormPoolLaunches, SparesThePassesOfTheNorm) {
  if (device_count(DeviceType::cuda) == 0) GTEST_SKIP() << "there is no CUDA device";
  const Device gpu{DeviceType::cuda, 0};
  const MaxPool2dOptions pool{.kernel = 3, .stride = 2, .padding = 1};
  const BatchNormOptions options{.activation = Activation::relu};
  const Tensor x = requires_grad(Tensor::full({2, 9, 8, 16}, 1.0, DType::f16, gpu)),
               gamma = requires_grad(Tensor::full({16}, 1.0, DType::f32, gpu)),
               beta = requires_grad(Tensor::full({16}, 1.0, DType::f32, gpu));
  const auto two_ops = [&] { return max_pool2d(batch_norm(x, gamma, beta, options, {}, {}), pool); };
  const auto one_op = [&] { return detail::batch_norm_pool(x, gamma, beta, options, {}, {}, pool, nullptr); };
  const auto cost = [&](const auto& run) {
    const cuda::Counters before = cuda::counters();
    const Tensor y = run();
    const cuda::Counters between = cuda::counters();
    backward(y, Tensor::full(y.shape(), 1.0, DType::f16, gpu));
    return std::pair{between - before, cuda::counters() - between};
  };
  (void)cost(two_ops);
  const auto [two_forward, two_backward] = cost(two_ops);
  const auto [forward, backward] = cost(one_op);
  EXPECT_EQ(forward.launches, two_forward.launches - 1);
  EXPECT_EQ(backward.launches, two_backward.launches - 1);
  // What the norm made is neither written nor read; nor is its gradient, which two passes read.
  const std::int64_t bytes = x.size() * 2;
  EXPECT_EQ(two_forward.bytes_moved - forward.bytes_moved, 2 * bytes);
  EXPECT_GE(two_backward.bytes_moved - backward.bytes_moved, 2 * bytes);
}

}  // namespace
}  // namespace hearth::test::batch_norm_pool_launches_test
