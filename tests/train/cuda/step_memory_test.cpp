// SPDX-License-Identifier: Apache-2.0
// The memory of a run on a CUDA device, real or emulated: estimated from small batches, against what the allocator then
// reports at larger ones.
#include <gtest/gtest.h>

#include "tests/train/estimated_memory.h"

namespace hearth::train::step_memory_test {
namespace {

using test::MemoryRun;

class CudaStepMemory : public ::testing::Test {
 protected:
  void SetUp() override {
    if (device_count(DeviceType::cuda) == 0) GTEST_SKIP() << "there is no CUDA device";
  }
};

TEST_F(CudaStepMemory, EstimatesADigitsResNetAtTwoBatches) {
  const MemoryRun run{.device = "cuda", .model = test::digits_resnet, .data = test::images_of_8};
  for (const std::int64_t batch : {24, 48}) run.expect_estimated({4, 8}, batch, 0.05);
}

TEST_F(CudaStepMemory, EstimatesReplayedSteps) {
  const MemoryRun run{
      .device = "cuda", .model = test::digits_resnet, .data = test::images_of_8, .train = R"(, "graph": true)"};
  // Regions of the arena hide much, so the rest has to be exact.
  run.expect_estimated({4, 8}, 128, 0.0005);
}

// A quarter as wide and on small images, for the time it takes; the whole one agrees as well (docs/architecture.md).
TEST_F(CudaStepMemory, EstimatesResNet50AtTwoBatches) {
  const MemoryRun run{.device = "cuda", .model = test::resnet50, .data = test::images_of_32};
  for (const std::int64_t batch : {6, 9}) run.expect_estimated({2, 4}, batch, 0.05, 1);
}

}  // namespace
}  // namespace hearth::train::step_memory_test
