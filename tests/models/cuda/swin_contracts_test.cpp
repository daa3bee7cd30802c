// SPDX-License-Identifier: Apache-2.0
// What a block of a Swin costs on a CUDA device, by counter, as contracts_test.cpp has it for a ResNet: attention
// within windows rolls, cuts and pads nothing in memory, and what is kept for the gradient grows with the tokens alone.
#include <gtest/gtest.h>

#include <cstdlib>
#include <string_view>

#include "hearth/autograd/backward.h"
#include "hearth/autograd/parameters.h"
#include "hearth/core/cuda/counters.h"
#include "hearth/core/cuda/stream.h"
#include "hearth/core/memory.h"
#include "hearth/core/random.h"
#include "hearth/models/swin.h"
#include "hearth/ops/ops.h"

namespace hearth::models {
namespace {

constexpr Device gpu{DeviceType::cuda, 0};

struct Cost {
  std::int64_t forward = 0, backward = 0;  ///< launches and calls of libraries
  std::int64_t layout_changes = 0, copies = 0, waits = 0, allocations = 0;
  std::int64_t kept = 0;  ///< bytes between the passes
  Cost operator-(const Cost& other) const {
    return {forward - other.forward, backward - other.backward, layout_changes - other.layout_changes,
            copies - other.copies,   waits - other.waits,       allocations - other.allocations,
            kept - other.kept};
  }
};

std::int64_t calls(const cuda::Counters& counters) { return counters.launches + counters.library_calls; }

// Of the third training step of a network of one stage, unless `options` say of how many blocks.
Cost cost_of(std::int64_t blocks, SwinOptions options, std::int64_t side) {
  if (options.depths.empty()) options.depths = {blocks};
  options.patch = 1;
  options.in_channels = 1;
  options.classes = 2;
  Swin model(options);
  nn::initialize(model, 1);
  model.to(gpu);
  FlatParameters flat(model.parameters());
  const Tensor x = Tensor::full({2, side, side, 1}, 0.5, DType::f32, gpu);
  Cost cost;
  for (int step = 0; step < 3; ++step) {
    const RandomScope random(1, static_cast<std::uint64_t>(step));
    flat.zero_grads();
    const std::int64_t before = memory_of(gpu).statistics().in_use;
    const cuda::Counters start = cuda::counters();
    const Tensor loss = mean(model(x));
    const cuda::Counters middle = cuda::counters();
    const std::int64_t kept = memory_of(gpu).statistics().in_use - before;
    backward(loss);
    flat.finish_grads();
    const cuda::Counters end = cuda::counters(), all = end - start;
    cost = {calls(middle - start),
            calls(end - middle),
            all.layout_changes,
            all.copies_in + all.copies_out + all.copies_within,
            all.waits,
            all.allocations,
            kept};
  }
  return cost;
}

class CudaSwinContracts : public ::testing::Test {
 protected:
  void SetUp() override {
    if (cuda::device_count() == 0) GTEST_SKIP() << cuda::why_no_device();
  }
  /// What a plain block and a shifted one add.
  static Cost two_blocks(const SwinOptions& options, std::int64_t side) {
    return cost_of(4, options, side) - cost_of(2, options, side);
  }
};

// Norm, product, attention, product, residual with drop-path and norm, product with gelu, product, residual.
TEST_F(CudaSwinContracts, ABlockLaunchesItsPartsAndMovesNothing) {
  // Where tests of bounds want each tensor as a block of its own, there is no pool to take them from.
  const char* const memory = std::getenv("HEARTH_MEMORY");
  const bool pooled = memory == nullptr || std::string_view(memory) != "system";
  for (const double drop_path : {0.0, 0.25})
    // Windows that divide the image, and such that are filled up: then what the padding is has a gradient too.
    for (const std::int64_t side : {8, 9}) {
      SCOPED_TRACE(join_text("drop_path ", drop_path, ", side ", side));
      const Cost cost = two_blocks({.heads = {2}, .width = 16, .window = 4, .drop_path = drop_path}, side);
      EXPECT_EQ(cost.forward, 2 * 8);
      EXPECT_LE(cost.backward, 2 * (23 + (drop_path > 0) + (side == 9)));
      EXPECT_EQ(cost.layout_changes, 0);
      EXPECT_EQ(cost.copies, 0);
      EXPECT_EQ(cost.waits, 0);
      EXPECT_TRUE(cost.allocations == 0 || !pooled) << cost.allocations << " allocations";
    }
}

// Its norm takes the four neighbours from where they lie, also at odd sides.
TEST_F(CudaSwinContracts, PatchMergingMovesNothing) {
  for (const std::int64_t side : {8, 9}) {
    const Cost cost = cost_of(2, {.heads = {2}, .width = 16, .window = 4}, side);
    const Cost merged = cost_of(2, {.depths = {2, 2}, .heads = {2, 2}, .width = 16, .window = 4}, side) - cost;
    // Norm and product, and the second stage's two blocks.
    EXPECT_EQ(merged.forward, 2 + 2 * 8) << side;
    EXPECT_EQ(merged.layout_changes, 0) << side;
    EXPECT_EQ(merged.copies, 0) << side;
  }
}

// What goes in, q, k and v, what attention gives, the residual, two norms' results, and 4 channels of hidden units for
// each before and after gelu; beside them a mean and a deviation of each token and norm. No scores, whatever the
// window.
TEST_F(CudaSwinContracts, ABlockKeeps16TensorsOfItsTokens) {
  constexpr std::int64_t width = 16;
  for (const std::int64_t side : {6, 12})
    for (const std::int64_t window : {2, 6}) {
      const Cost cost = two_blocks({.heads = {2}, .width = width, .window = window}, side);
      const std::int64_t tokens = 2 * side * side, bytes = sizeof(float);
      EXPECT_GE(cost.kept, 2 * tokens * 16 * width * bytes);
      EXPECT_LE(cost.kept, 2 * (tokens * (16 * width + 4) * bytes + 4096)) << "side " << side << ", window " << window;
    }
}

}  // namespace
}  // namespace hearth::models
