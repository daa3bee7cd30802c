// SPDX-License-Identifier: Apache-2.0
// What a block of a Swin costs on a CUDA device, by counter, as contracts_test.cpp has it for a ResNet: attention
// within windows rolls, cuts and pads nothing in memory, and what is saved for the gradient grows with the tokens
// alone.
#include <gtest/gtest.h>

#include "models/swin.h"
#include "ops/ops.h"
#include "tests/models/cuda/step_cost.h"

namespace hearth::models::swin_contracts_test {
namespace {

// Of a model of one stage, unless `options` say of how many blocks.
StepCost cost_of(std::int64_t blocks, SwinOptions options, std::int64_t side) {
  if (options.depths.empty()) options.depths = {blocks};
  options.patch = 1;
  options.in_channels = 1;
  options.classes = 2;
  Swin model(options);
  const Tensor x = Tensor::full({2, side, side, 1}, 0.5, DType::f32, gpu);
  return step_cost(model, [&] { return mean(model(x)); });
}

std::int64_t copies_within(const StepCost& cost) { return cost.forward.copies_within + cost.backward.copies_within; }

class CudaSwinContracts : public ::testing::Test {
 protected:
  void SetUp() override {
    if (cuda::device_count() == 0) GTEST_SKIP() << cuda::why_no_device();
  }
  /// What a plain block and a shifted one add.
  static StepCost two_blocks(const SwinOptions& options, std::int64_t side) {
    return cost_of(4, options, side) - cost_of(2, options, side);
  }
};

// Norm, product, attention, product, residual with drop-path and norm, product with gelu, product, residual.
TEST_F(CudaSwinContracts, ABlockLaunchesItsPartsAndMovesNothing) {
  for (const double drop_path : {0.0, 0.25})
    // Windows that divide the image, and such that are filled up: then what the padding is has a gradient too.
    for (const std::int64_t side : {8, 9}) {
      SCOPED_TRACE(join_text("drop_path ", drop_path, ", side ", side));
      const StepCost cost = two_blocks({.heads = {2}, .width = 16, .window = 4, .drop_path = drop_path}, side);
      EXPECT_EQ(calls(cost.forward), 2 * (8 + gelu_apart()));
      EXPECT_LE(calls(cost.backward), 2 * (23 + (drop_path > 0) + (side == 9)));
      EXPECT_EQ(copies_within(cost), 0);
      expect_undisturbed(cost);
    }
}

// Its norm takes the four neighbours from where they lie, also at odd sides.
TEST_F(CudaSwinContracts, PatchMergingMovesNothing) {
  for (const std::int64_t side : {8, 9}) {
    const StepCost cost = cost_of(2, {.heads = {2}, .width = 16, .window = 4}, side);
    const StepCost merged = cost_of(2, {.depths = {2, 2}, .heads = {2, 2}, .width = 16, .window = 4}, side) - cost;
    // Norm and product, and the second stage's two blocks.
    EXPECT_EQ(calls(merged.forward), 2 + 2 * (8 + gelu_apart())) << side;
    EXPECT_EQ(copies_within(merged), 0) << side;
    expect_undisturbed(merged);
  }
}

// What goes in, q, k and v, what attention gives, the residual, two norms' results, and 4 channels of hidden units for
// each before and after gelu; beside them a mean and a deviation of each token and norm. No scores, whatever the
// window.
TEST_F(CudaSwinContracts, ABlockKeeps16TensorsOfItsTokens) {
  constexpr std::int64_t width = 16;
  for (const std::int64_t side : {6, 12})
    for (const std::int64_t window : {2, 6}) {
      const StepCost cost = two_blocks({.heads = {2}, .width = width, .window = window}, side);
      const std::int64_t tokens = 2 * side * side, bytes = sizeof(float);
      EXPECT_GE(cost.kept, 2 * tokens * 16 * width * bytes);
      EXPECT_LE(cost.kept, 2 * (tokens * (16 * width + 4) * bytes + 4096)) << "side " << side << ", window " << window;
    }
}

}  // namespace
}  // namespace hearth::models::swin_contracts_test
