// SPDX-License-Identifier: Apache-2.0
// What patch merging's norm costs on a device.
#include <gtest/gtest.h>

#include "autograd/backward.h"
#include "autograd/grad_state.h"
#include "core/cuda/counters.h"
#include "ops/norm/merge_layer_norm.h"

namespace hearth::merge_layer_norm_launches_test {
namespace {

TEST(CudaMergeLayerNorm, IsOneLaunchAndTwoForTheGradient) {
  if (device_count(DeviceType::cuda) == 0) GTEST_SKIP() << "there is no CUDA device";
  constexpr Device gpu{DeviceType::cuda, 0};
  for (const DType dtype : {DType::f32, DType::bf16})
    for (const Shape& shape : {Shape{2, 4, 6, 32}, Shape{2, 5, 3, 24}}) {
      const std::int64_t cols = 4 * shape.dim(3);
      const Tensor x = requires_grad(Tensor::full(shape, 1.0, dtype, gpu));
      const Tensor gamma = requires_grad(Tensor::full({cols}, 1.0, DType::f32, gpu)),
                   beta = requires_grad(gamma.detach().clone());
      const Tensor dy = Tensor::full({2, (shape.dim(1) + 1) / 2, (shape.dim(2) + 1) / 2, cols}, 1.0, dtype, gpu);
      // So that their first contributions are written in place, as by a trainer.
      for (const Tensor& leaf : {x, gamma, beta}) (void)grad_of(leaf), zero_grad(leaf);
      const cuda::Counters start = cuda::counters();
      const Tensor y = merge_layer_norm(x, gamma, beta);
      const cuda::Counters middle = cuda::counters();
      EXPECT_EQ((middle - start).launches, 1);
      backward(y, dy);
      EXPECT_EQ((cuda::counters() - middle).launches, 2);
    }
}

}  // namespace
}  // namespace hearth::merge_layer_norm_launches_test
