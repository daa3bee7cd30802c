// SPDX-License-Identifier: Apache-2.0
// Mixed precision on a CUDA device, real or emulated: a replayed step whose gradients overflow is skipped without the
// host being asked, and no conversion stands alone but for those listed. That replayed steps give the bits of eager
// ones is in families_test.cpp.
#include <gtest/gtest.h>

#include "core/cuda/counters.h"
#include "ops/dispatch/candidates.h"
#include "tests/support/error_message.h"
#include "tests/train/precision_session.h"

namespace hearth::train::precision_test {
namespace {

using test::PrecisionRun;
using test::take_steps;

class CudaPrecision : public ::testing::Test {
 protected:
  void SetUp() override {
    if (device_count(DeviceType::cuda) == 0) GTEST_SKIP() << "there is no CUDA device";
  }
  test::TempDir folder_;
};

const std::vector<PrecisionRun>& every_precision() {
  static const std::vector<PrecisionRun> runs{
      {.level = "O1", .dtype = "bf16", .device = "cuda", .model = test::tiny_resnet, .train = R"(, "clip_norm": 0.5)"},
      {.level = "O2", .dtype = "bf16", .device = "cuda", .model = test::tiny_resnet, .train = R"(, "ema": 0.9)"},
      {.level = "O1", .dtype = "f16", .device = "cuda", .model = test::tiny_resnet, .train = R"(, "clip_norm": 0.5)"},
      {.level = "O2", .dtype = "f16", .device = "cuda", .model = test::tiny_resnet, .train = R"(, "ema": 0.9)"},
      {.device = "cuda", .model = test::small_mlp, .optimizer = R"({"type": "lamb", "lr": 0.01})"},
  };
  return runs;
}

TEST_F(CudaPrecision, AnInfinityInAReplayedStepCostsThatUpdateAndNothingElse) {
  for (const auto& [level, optimizer] : {std::pair("O1", R"({"type": "sgd", "lr": 0.05, "momentum": 0.9})"),
                                         {"O2", R"({"type": "adamw", "lr": 0.005})"}}) {
    const PrecisionRun run{.level = level,
                           .device = "cuda",
                           .model = test::tiny_resnet,
                           .optimizer = optimizer,
                           .train = R"(, "ema": 0.9, "clip_norm": 1)"};
    const auto with = run.session(folder_), without = run.session(folder_);
    const auto captured_with = make_captured_step(*with), captured_without = make_captured_step(*without);
    // From the third step on the graph is replayed.
    take_steps(*with, 0, 7, 4, -1, [&](auto batches) { return captured_with->run(batches); });
    take_steps(*without, 0, 7, -1, 4, [&](auto batches) { return captured_without->run(batches); });
    ASSERT_GT(captured_with->nodes(), 0);
    EXPECT_EQ(with->loss_scale_now.skipped, 1);
    EXPECT_EQ(with->loss_scale_now.scale, 32768);
    EXPECT_EQ(without->loss_scale_now.scale, 65536);
    EXPECT_EQ(with->model_state.hash(), without->model_state.hash()) << level << optimizer;
    EXPECT_EQ(with->ema->average().to_doubles(), without->ema->average().to_doubles());
    EXPECT_EQ(with->optimizer->steps(), 6);
    EXPECT_EQ(with->position.interval.loss_sum, without->position.interval.loss_sum);
    EXPECT_EQ(with->position.interval.samples, without->position.interval.samples);
    EXPECT_EQ(with->grad_norm, without->grad_norm);
  }
}

TEST_F(CudaPrecision, ANormThatIsNotFiniteIsFoundWhenItIsRead) {
  const PrecisionRun run{
      .level = "O0", .dtype = "f32", .device = "cuda", .model = test::root_of_zero(), .train = R"(, "clip_norm": 1)"};
  const auto session = run.session(folder_);
  const std::string message = test::error_message<DivergedError>(
      [&] { take_steps(*session, 0, 1, -1, -1, [&](auto batches) { return training_step(*session, batches); }); });
  EXPECT_PRED2(test::contains, message, "the norm of the gradients became");
  EXPECT_PRED2(test::contains, message, "at or before step 1");
  EXPECT_PRED2(test::contains, message, "that of \"root\"");
}

TEST_F(CudaPrecision, GivesUpAtTheFloorAndNamesAParameter) {
  const auto session =
      PrecisionRun{.device = "cuda", .model = test::root_of_zero(), .precision = R"(, "loss_scale": 256)"}.session(
          folder_);
  const auto step = [&](auto batches) { return training_step(*session, batches); };
  EXPECT_NO_THROW(take_steps(*session, 0, 9, -1, -1, step));
  const std::string message = test::error_message<DivergedError>([&] { take_steps(*session, 9, 10, -1, -1, step); });
  EXPECT_PRED2(test::contains, message, "overflowed 10 times in a row");
  EXPECT_PRED2(test::contains, message, "that of \"root\"");
}

TEST_F(CudaPrecision, AReplayedScaledStepIsOneLaunchAndNoWait) {
  const auto session =
      PrecisionRun{.device = "cuda", .model = test::tiny_resnet, .train = R"(, "clip_norm": 1, "ema": 0.9)"}.session(
          folder_);
  const auto captured = make_captured_step(*session);
  take_steps(*session, 0, 4, -1, -1, [&](auto batches) { return captured->run(batches); });
  ASSERT_GT(captured->nodes(), 0);
  const data::Batch batch = test::noise_batch(5);
  const cuda::Counters before = cuda::counters();
  for (int i = 0; i < 3; ++i) (void)captured->run(std::span(&batch, 1));
  const cuda::Counters spent = cuda::counters() - before;
  EXPECT_EQ(spent.graph_launches, 3);
  EXPECT_EQ(spent.launches, 0);
  EXPECT_EQ(spent.waits, 0);
  EXPECT_EQ(spent.allocations, 0);
  EXPECT_EQ(spent.copies_out, 0);
}

// docs/precision.md lists what is converted alone. A library's filter gradients are, from 16 bits.
TEST_F(CudaPrecision, NothingIsConvertedAloneButFloatImages) {
  const ForceCandidate native("conv2d", "mma");
  for (const PrecisionRun& run : every_precision()) {
    const auto session = run.session(folder_);
    const auto step = [&](auto batches) { return training_step(*session, batches); };
    take_steps(*session, 0, 1, -1, -1, step);
    const cuda::Counters before = cuda::counters();
    take_steps(*session, 1, 2, -1, -1, step);
    const cuda::Counters spent = cuda::counters() - before;
    EXPECT_EQ(spent.conversions, 1) << run.level << run.dtype << run.model;
    // As the loader gives them, they are normalised into the low-precision type.
    data::Loader loader = session->make_train_loader();
    const data::Batch batch = loader.next();
    (void)training_step(*session, std::span(&batch, 1));
    const cuda::Counters with_pixels = cuda::counters();
    (void)training_step(*session, std::span(&batch, 1));
    EXPECT_EQ((cuda::counters() - with_pixels).conversions, 0) << run.level << run.dtype << run.model;
  }
}

TEST_F(CudaPrecision, MicroBatchesConvertNoWeights) {
  const ForceCandidate native("conv2d", "mma");
  const auto session =
      PrecisionRun{.level = "O1", .device = "cuda", .model = test::tiny_resnet, .train = R"(, "accumulate": 3)"}
          .session(folder_);
  std::vector<data::Batch> batches;
  for (int number = 0; number < 3; ++number) batches.push_back(test::noise_batch(number));
  (void)training_step(*session, batches);
  const cuda::Counters before = cuda::counters();
  (void)training_step(*session, batches);
  EXPECT_EQ((cuda::counters() - before).conversions, 3) << "the images of each";
}

TEST_F(CudaPrecision, FollowsTheCpuWithinRounding) {
  for (const char* level : {"O1", "O2"})
    for (const char* dtype : {"bf16", "f16"}) {
      double losses[2];
      for (const char* device : {"cpu", "cuda"}) {
        const auto session =
            PrecisionRun{.level = level, .dtype = dtype, .device = device, .model = test::tiny_resnet}.session(folder_);
        take_steps(*session, 0, 3, -1, -1, [&](auto batches) { return training_step(*session, batches); });
        losses[device == std::string("cuda")] = session->position.interval.loss_sum;
      }
      EXPECT_NEAR(losses[1], losses[0], 0.02 * losses[0]) << level << dtype;
    }
}

}  // namespace
}  // namespace hearth::train::precision_test
