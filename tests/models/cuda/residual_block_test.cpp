// SPDX-License-Identifier: Apache-2.0
// The blocks of a ResNet in 16 bits on a CUDA device: when they are one op, and that it changes nothing but the speed.
#include <gtest/gtest.h>

#include <map>
#include <string>
#include <vector>

#include "autograd/grad_state.h"
#include "autograd/op_observer.h"
#include "autograd/record.h"
#include "models/resnet.h"
#include "ops/candidates.h"
#include "ops/ops.h"
#include "tests/models/cuda/step_cost.h"

namespace hearth::models::residual_block_test {
namespace {

class CountOps : public OpObserver {
 public:
  void after(const OpInfo& info, std::span<const Tensor>, const Tensor&) override { ++count[info.name]; }
  std::map<std::string, int> count;
};

class CudaResidualBlock : public ::testing::Test {
 protected:
  void SetUp() override {
    if (cuda::device_count() == 0) GTEST_SKIP() << cuda::why_no_device();
    nn::initialize(model, 3);
    model.to(gpu);
    // A weight of 0 in the last norms would hide what is before them.
    for (const NamedTensor& parameter : model.parameters())
      if (parameter.name.find("bn3.weight") != std::string::npos) parameter.tensor->fill_(0.5);
    std::vector<double> pixels;
    Random random(5, 1);
    for (int i = 0; i < 2 * 8 * 8 * 8; ++i) pixels.push_back(random.normal());
    x = Tensor::of<double>({2, 8, 8, 8}, pixels).to(DType::f16).to(gpu);
  }

  nn::Module& part(const std::string& path) {
    nn::Module* found = nullptr;
    model.for_each_module([&](nn::Module& module) {
      if (module.path() == path) found = &module;
    });
    EXPECT_NE(found, nullptr) << path;
    return *found;
  }

  int blocks_as_one() {
    CountOps ops;
    const OpObserverScope observed(ops);
    const AutocastScope autocast(DType::f16);
    (void)model(x);
    return ops.count["residual_block"];
  }

  /// Outputs, running statistics and gradients after a step from the same weights.
  std::vector<Tensor> step() {
    for (const NamedTensor& buffer : model.buffers()) buffer.tensor->fill_(0.5);
    model.zero_grad();
    const AutocastScope autocast(DType::f16);
    const Tensor y = model(x);
    backward(sum(y * y), 1.0);
    std::vector<Tensor> all{y};
    for (const NamedTensor& buffer : model.buffers()) all.push_back(buffer.tensor->clone());
    for (const NamedTensor& parameter : model.parameters())
      if (needs_grad(*parameter.tensor)) all.push_back(grad_of(*parameter.tensor).clone());
    return all;
  }

  ResNet model{
      {.blocks = {2, 1}, .bottleneck = true, .stem = ResNetStem::small, .width = 8, .in_channels = 8, .classes = 8}};
  Tensor x;
  // A library's plain convolutions round elsewhere.
  ForceCandidate force{"conv2d", "mma"};
};

TEST_F(CudaResidualBlock, IsOneOpWhereNobodyLooksInside) {
  EXPECT_EQ(blocks_as_one(), 3);
  {
    const NoGrad no_grad;
    EXPECT_EQ(blocks_as_one(), 3);
  }
  part("layer1.1.bn2").eval();
  EXPECT_EQ(blocks_as_one(), 2) << "a norm in evaluation";
  part("layer1.1.bn2").train();
  model.eval();
  EXPECT_EQ(blocks_as_one(), 0);
  model.train();
  int seen = 0;
  part("layer1.0.bn1").on_forward([&](const nn::Module&, const Tensor&) { ++seen; });
  EXPECT_EQ(blocks_as_one(), 2) << "a hook on a norm inside";
  EXPECT_EQ(seen, 1);
  part("layer1.0.downsample.1").on_forward([&](const nn::Module&, const Tensor&) { ++seen; });
  EXPECT_EQ(blocks_as_one(), 2) << "a hook on the norm of its shortcut, too";
  EXPECT_EQ(seen, 3);
  part("layer2.0.conv2").on_backward([&](const nn::Module&, const Tensor&) { ++seen; });
  EXPECT_EQ(blocks_as_one(), 1) << "a hook on the gradient of a convolution inside";
}

TEST_F(CudaResidualBlock, IsItsLayersOneByOne) {
  const auto expect_same = [&](const char* what, const std::function<void()>& look_inside) {
    SCOPED_TRACE(what);
    const std::vector<Tensor> whole = step();
    look_inside();
    EXPECT_EQ(blocks_as_one(), 0);
    const std::vector<Tensor> apart = step();
    ASSERT_EQ(whole.size(), apart.size());
    for (std::size_t i = 0; i < whole.size(); ++i) {
      const std::vector<double> a = whole[i].to_doubles(), b = apart[i].to_doubles();
      double largest = 0, off = 0;
      for (std::size_t at = 0; at < a.size(); ++at) {
        largest = std::max(largest, std::abs(b[at]));
        off = std::max(off, std::abs(a[at] - b[at]));
      }
      EXPECT_LE(off, 4e-3 * largest) << i;
    }
  };
  part("layer1.0.conv2").freeze();
  part("layer1.0.bn2").freeze();
  expect_same("parts of a block frozen", [&] {
    for (const char* const conv : {"layer1.0.conv1", "layer1.1.conv1", "layer2.0.conv1"})
      part(conv).on_forward([](const nn::Module&, const Tensor&) {});
  });
}

// Norm, ReLU and pooling of the stem.
TEST_F(CudaResidualBlock, TheStemIsOneOpWhereNobodyLooksInside) {
  ResNet whole({.blocks = {1}, .bottleneck = true, .stem = ResNetStem::imagenet, .width = 8, .in_channels = 8});
  nn::initialize(whole, 3);
  whole.to(gpu);
  const auto stems = [&] {
    CountOps ops;
    const OpObserverScope observed(ops);
    const AutocastScope autocast(DType::f16);
    const Tensor y = whole.embedding(x);
    EXPECT_EQ(ops.count["batch_norm_pool"] + ops.count["max_pool2d"], 1);
    return std::pair{ops.count["batch_norm_pool"], y};
  };
  const auto [ones, together] = stems();
  EXPECT_EQ(ones, 1);
  whole.for_each_module([](nn::Module& module) {
    if (module.path() == "bn1") module.on_forward([](const nn::Module&, const Tensor&) {});
  });
  const auto [none, apart] = stems();
  EXPECT_EQ(none, 0) << "a hook on the norm";
  EXPECT_EQ(together.to_doubles(), apart.to_doubles());
  whole.eval();
  EXPECT_EQ(stems().first, 0);
}

}  // namespace
}  // namespace hearth::models::residual_block_test
