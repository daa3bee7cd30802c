// SPDX-License-Identifier: Apache-2.0
// What a block of a ResNet costs the host on a CUDA device, by counter: a launch more in any of its layers, a copy that
// only reorders, a wait or an allocation shows here. The same on a real and on the emulated device.
#include <gtest/gtest.h>

#include <cstdlib>
#include <string_view>

#include "hearth/autograd/backward.h"
#include "hearth/autograd/parameters.h"
#include "hearth/core/cuda/counters.h"
#include "hearth/core/cuda/stream.h"
#include "hearth/models/resnet.h"
#include "hearth/ops/candidates.h"
#include "hearth/ops/ops.h"

namespace hearth::models {
namespace {

constexpr Device gpu{DeviceType::cuda, 0};

struct Cost {
  cuda::Counters forward, backward;
};

// Of one step after two others.
Cost cost_of(std::vector<std::int64_t> blocks, bool bottleneck) {
  ResNet model(
      {.blocks = std::move(blocks), .bottleneck = bottleneck, .stem = ResNetStem::small, .width = 8, .classes = 10});
  model.to(gpu);
  FlatParameters flat(model.parameters());
  const Tensor x = Tensor::full({2, 8, 8, 3}, 0.5, DType::f32, gpu), labels = Tensor::zeros({2}, DType::i64, gpu);
  Cost cost;
  for (int step = 0; step < 3; ++step) {
    flat.zero_grads();
    const cuda::Counters start = cuda::counters();
    const Tensor loss = cross_entropy(model(x), labels);
    const cuda::Counters middle = cuda::counters();
    backward(loss);
    flat.finish_grads();
    cost = {middle - start, cuda::counters() - middle};
  }
  return cost;
}

std::int64_t calls(const cuda::Counters& counters) { return counters.launches + counters.library_calls; }

void expect_undisturbed(const cuda::Counters& counters) {
  EXPECT_EQ(counters.layout_changes, 0);
  EXPECT_EQ(counters.waits, 0);
  // Where tests of bounds want each tensor as a block of its own, there is no pool to take them from.
  const char* const memory = std::getenv("HEARTH_MEMORY");
  const bool pooled = memory == nullptr || std::string_view(memory) != "system";
  EXPECT_TRUE(counters.allocations == 0 || !pooled) << counters.allocations << " allocations";
  EXPECT_EQ(counters.copies_in + counters.copies_out, 0);
}

struct Block {
  const char* name;
  bool bottleneck;
  // Of one block. Forward, for each convolution with its norm: the convolution, whose kernel takes the moments of its
  // result (a library's does not: one pass more), one pass that joins them to coefficients, one that normalises.
  // Backward: two for the norm's sums, its gradient, the gradients of images and of filters; and for the block one
  // addition where the shortcut joins.
  std::int64_t convolutions, forward, backward;
};

class CudaContracts : public ::testing::TestWithParam<Block> {
 protected:
  void SetUp() override {
    if (cuda::device_count() == 0) GTEST_SKIP() << cuda::why_no_device();
  }
};

TEST_P(CudaContracts, ABlockOfAResNet) {
  // The second block of a stage has no convolution in its shortcut; what a model with one more costs more is its cost.
  const Cost two = cost_of({2}, GetParam().bottleneck), three = cost_of({3}, GetParam().bottleneck);
  for (const Cost& cost : {two, three}) {
    expect_undisturbed(cost.forward);
    expect_undisturbed(cost.backward);
  }
  const std::int64_t more = last_choice("conv2d") == "cudnn" ? GetParam().convolutions : 0;
  EXPECT_EQ(calls(three.forward - two.forward), GetParam().forward + more);
  EXPECT_EQ(calls(three.backward - two.backward), GetParam().backward);
}

INSTANTIATE_TEST_SUITE_P(Blocks, CudaContracts,
                         testing::Values(Block{"basic", false, 2, 6, 11}, Block{"bottleneck", true, 3, 9, 16}),
                         [](const auto& tested) { return tested.param.name; });

}  // namespace
}  // namespace hearth::models
