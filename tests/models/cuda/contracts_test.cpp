// SPDX-License-Identifier: Apache-2.0
// What a block of a ResNet costs the host on a CUDA device, by counter: a launch more in any of its layers, a copy that
// only reorders, a wait or an allocation shows here. The same on a real and on the emulated device.
#include <gtest/gtest.h>

#include "models/resnet.h"
#include "ops/cublaslt/library.h"
#include "ops/cudnn/library.h"
#include "ops/ops.h"
#include "tests/models/cuda/step_cost.h"

namespace hearth::models::contracts_test {
namespace {

StepCost cost_of(std::vector<std::int64_t> blocks, bool bottleneck) {
  ResNet model(
      {.blocks = std::move(blocks), .bottleneck = bottleneck, .stem = ResNetStem::small, .width = 8, .classes = 10});
  const Tensor x = Tensor::full({2, 8, 8, 3}, 0.5, DType::f32, gpu), labels = Tensor::zeros({2}, DType::i64, gpu);
  return step_cost(model, [&] { return cross_entropy(model(x), labels); });
}

struct Block {
  const char* name;
  bool bottleneck;
  // Of one block. Forward, for each convolution with its norm: the convolution, whose kernel takes the moments of its
  // result (a library's does not: one pass more), one pass that joins them to coefficients, one that normalises.
  // Backward: one for the norm's sums, its gradient, the gradients of images and of filters. Where the shortcut joins
  // the gradient of images is added as it is stored.
  std::int64_t convolutions, products, forward, backward;  // products: convolutions with 1x1 filters
};

class CudaContracts : public ::testing::TestWithParam<Block> {
 protected:
  void SetUp() override {
    if (cuda::device_count() == 0) GTEST_SKIP() << cuda::why_no_device();
  }
};

TEST_P(CudaContracts, ABlockOfAResNet) {
  // The second block of a stage has no convolution in its shortcut; what a model with one more costs more is its cost.
  const StepCost two = cost_of({2}, GetParam().bottleneck), three = cost_of({3}, GetParam().bottleneck);
  for (const StepCost& cost : {two, three}) expect_undisturbed(cost);
  std::int64_t more = 0;
  if (cuda::blas::why_absent().empty()) more = GetParam().products;
  if (cuda::dnn::why_absent().empty()) more = GetParam().convolutions;
  EXPECT_EQ(calls(three.forward - two.forward), GetParam().forward + more);
  EXPECT_EQ(calls(three.backward - two.backward), GetParam().backward);
}

INSTANTIATE_TEST_SUITE_P(Blocks, CudaContracts,
                         testing::Values(Block{"basic", false, 2, 0, 6, 8}, Block{"bottleneck", true, 3, 2, 9, 12}),
                         [](const auto& tested) { return tested.param.name; });

}  // namespace
}  // namespace hearth::models::contracts_test
