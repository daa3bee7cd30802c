// SPDX-License-Identifier: Apache-2.0
// The stem of a ResNet in 16 bits on a CUDA device: when it is one op, and that it changes nothing but the speed.
#include <gtest/gtest.h>

#include <map>
#include <string>
#include <vector>

#include "autograd/op_observer.h"
#include "autograd/record.h"
#include "models/resnet.h"
#include "ops/dispatch/candidates.h"
#include "ops/ops.h"
#include "tests/models/cuda/step_cost.h"

namespace hearth::models::resnet_stem_test {
namespace {

class CountOps : public OpObserver {
 public:
  void after(const OpInfo& info, std::span<const Tensor>, const Tensor&) override { ++count[info.name]; }
  std::map<std::string, int> count;
};

// Norm, ReLU and pooling.
TEST(CudaResNetStem, IsOneOpWhereNobodyLooksInside) {
  if (cuda::device_count() == 0) GTEST_SKIP() << cuda::why_no_device();
  // A library's plain convolutions round elsewhere.
  const ForceCandidate force("conv2d", "mma");
  std::vector<double> pixels;
  Random random(5, 1);
  for (int i = 0; i < 2 * 8 * 8 * 8; ++i) pixels.push_back(random.normal());
  const Tensor x = Tensor::of<double>({2, 8, 8, 8}, pixels).to(DType::f16).to(gpu);
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
}  // namespace hearth::models::resnet_stem_test
