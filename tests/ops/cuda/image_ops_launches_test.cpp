// SPDX-License-Identifier: Apache-2.0
// What the image ops cost on a device.
#include <gtest/gtest.h>

#include "autograd/backward.h"
#include "autograd/grad_state.h"
#include "core/cuda/counters.h"
#include "ops/interpolate/interpolate.h"
#include "ops/norm/group_norm.h"

namespace hearth::image_ops_launches_test {
namespace {

constexpr Device gpu{DeviceType::cuda, 0};

TEST(CudaImageOps, InterpolateIsTwoLaunchesEachWay) {
  if (device_count(DeviceType::cuda) == 0) GTEST_SKIP() << "there is no CUDA device";
  for (const DType dtype : {DType::f32, DType::bf16})
    for (const bool antialias : {false, true}) {
      const Tensor x = requires_grad(Tensor::full({2, 9, 7, 8}, 1.0, dtype, gpu));
      const Tensor dy = Tensor::full({2, 5, 13, 8}, 1.0, dtype, gpu);
      // So that its first contribution is written in place, as by a trainer.
      (void)grad_of(x), zero_grad(x);
      const cuda::Counters start = cuda::counters();
      const Tensor y = interpolate(x, {.size = Pair{5, 13}, .mode = Interpolation::bilinear, .antialias = antialias});
      const cuda::Counters middle = cuda::counters();
      EXPECT_EQ((middle - start).launches, 2);
      backward(y, dy);
      EXPECT_EQ((cuda::counters() - middle).launches, 2);
    }
}

TEST(CudaImageOps, GroupNormIsOneLaunchAndThreeForTheGradient) {
  if (device_count(DeviceType::cuda) == 0) GTEST_SKIP() << "there is no CUDA device";
  for (const DType dtype : {DType::f32, DType::bf16}) {
    const Tensor x = requires_grad(Tensor::full({2, 9, 7, 24}, 1.0, dtype, gpu)), dy = x.detach().clone();
    const Tensor gamma = requires_grad(Tensor::full({24}, 1.0, DType::f32, gpu)),
                 beta = requires_grad(gamma.detach().clone());
    for (const Tensor& leaf : {x, gamma, beta}) (void)grad_of(leaf), zero_grad(leaf);
    const cuda::Counters start = cuda::counters();
    const Tensor y = group_norm(x, gamma, beta, 3);
    const cuda::Counters middle = cuda::counters();
    EXPECT_EQ((middle - start).launches, 1);
    backward(y, dy);
    EXPECT_EQ((cuda::counters() - middle).launches, 3);
  }
}

}  // namespace
}  // namespace hearth::image_ops_launches_test
