// SPDX-License-Identifier: Apache-2.0
// What updates a recorded step may hold: every form of LARS and LAMB, averages, and batches that weigh by the labels
// that count. Replayed steps give the bits of eager ones.
#include <gtest/gtest.h>

#include "core/cuda/counters.h"
#include "tests/support/error_message.h"
#include "tests/support/temp_dir.h"
#include "tests/train/precision_session.h"
#include "train/predictor.h"
#include "train/report/trust_ratios.h"

namespace hearth::train::captured_updates_test {
namespace {

class CudaCapturedUpdates : public testing::Test {
 protected:
  void SetUp() override {
    if (device_count(DeviceType::cuda) == 0) GTEST_SKIP() << "there is no CUDA device";
  }

  static test::PrecisionRun plain() {
    return {.level = "O0", .dtype = "f32", .device = "cuda", .model = test::small_mlp};
  }

  /// Hashes of weights and state after some steps, and the loss. Labels of 3 come in varying numbers.
  struct Outcome {
    std::string weights, state;
    double loss = 0;
    std::int64_t nodes = 0;
    std::string ratios;  // of the last step
  };
  Outcome after(const test::PrecisionRun& run, bool captured) {
    const auto session = run.session(folder_);
    const auto replay = make_captured_step(*session);
    const std::int64_t accumulate = session->config().train.accumulate;
    for (int number = 0; number < 6; ++number) {
      std::vector<data::Batch> batches;
      for (std::int64_t i = 0; i < accumulate; ++i)
        batches.push_back(test::noise_batch(static_cast<int>(accumulate) * number + static_cast<int>(i)));
      session->position.interval.samples +=
          (captured ? replay->run(batches) : training_step(*session, batches)).samples;
      ++session->position.step;
    }
    session->read_interval();
    EXPECT_EQ(replay->unsupported_reason(), "");
    Json record = Json::object();
    write_trust_ratios(record, *session->optimizer);
    return {session->model_state.hash(), session->training_state.hash(), session->position.interval.loss_sum,
            replay->nodes(), to_text(record)};
  }
  void expect_same_bits(const test::PrecisionRun& run) {
    const Outcome eager = after(run, false), replayed = after(run, true);
    EXPECT_GT(replayed.nodes, 0);
    EXPECT_EQ(replayed.weights, eager.weights) << run.optimizer << run.train;
    EXPECT_EQ(replayed.state, eager.state) << run.optimizer << run.train;
    EXPECT_EQ(replayed.loss, eager.loss) << run.optimizer << run.train;
  }

  test::TempDir folder_;
};

TEST_F(CudaCapturedUpdates, FormsOfLarsAndLamb) {
  for (const char* optimizer : {R"({"type": "lars", "lr": 0.5, "clip_trust": true, "lr_in_momentum": true})",
                                R"({"type": "lamb", "max_grad_norm": 0.5, "norm_min": 0.5, "norm_max": 4})"})
    for (const bool scaled : {false, true}) {
      test::PrecisionRun run = plain();
      run.optimizer = optimizer;
      run.train = R"(, "ema": 0.9}, "schedule": {"type": "polynomial", "power": 2, "warmup_steps": 3)";
      if (scaled) run.level = "O2", run.dtype = "f16";
      expect_same_bits(run);
    }
}

TEST_F(CudaCapturedUpdates, TrustRatiosOfReplayedSteps) {
  for (const char* optimizer : {R"({"type": "lars", "lr": 0.5})", R"({"type": "lamb"})"}) {
    test::PrecisionRun run = plain(), on_cpu = plain();
    run.optimizer = on_cpu.optimizer = optimizer;
    const Outcome eager = after(run, false), replayed = after(run, true);
    EXPECT_GT(replayed.nodes, 0);
    EXPECT_EQ(replayed.ratios, eager.ratios);
    EXPECT_PRED2(test::contains, replayed.ratios, R"({"trust_ratio":{"*":{"min":)");
  }
}

TEST_F(CudaCapturedUpdates, PageableMemoryChangesNoBit) {
  test::PrecisionRun pageable = plain();
  pageable.train = R"(, "pinned": false)";
  const cuda::Counters before = cuda::counters();
  const Outcome pinned = after(plain(), true);
  const cuda::Counters of_pinned = cuda::counters() - before;
  for (const bool captured : {false, true}) {
    const cuda::Counters start = cuda::counters();
    const Outcome found = after(pageable, captured);
    EXPECT_EQ(found.weights, pinned.weights) << captured;
    EXPECT_EQ(found.state, pinned.state) << captured;
    EXPECT_EQ(found.nodes > 0, captured);
    // 6 batches of images and labels.
    EXPECT_EQ((cuda::counters() - start).pageable_copies - of_pinned.pageable_copies, 12) << captured;
  }
}

// A prediction goes the way of a training's batches.
TEST_F(CudaCapturedUpdates, PredictionsComeFromPinnedMemory) {
  const Tensor images = test::noise_batch(3)["images"];
  std::vector<double> logits[2];
  std::int64_t pageable[2] = {};
  for (const bool pinned : {false, true}) {
    test::PrecisionRun run = plain();
    if (!pinned) run.train = R"(, "pinned": false)";
    const Predictor predictor(run.session(folder_));
    const cuda::Counters before = cuda::counters();
    logits[pinned ? 1 : 0] = predictor.predict_tensor(images).logits.to_doubles();
    pageable[pinned ? 1 : 0] = (cuda::counters() - before).pageable_copies;
  }
  EXPECT_EQ(logits[0], logits[1]);
  EXPECT_EQ(pageable[0] - pageable[1], 1) << "the images; the outputs come back alike";
}

TEST_F(CudaCapturedUpdates, BatchesWeighByTheLabelsThatCount) {
  test::PrecisionRun run = plain();
  for (const char* weights : {"", R"(, "class_weights": [9, 1, 0.1, 1, 5, 2, 0.3, 1, 7, 1])"}) {
    run.train = R"(, "accumulate": 3}, "loss": {"type": "cross_entropy", "ignore_index": 3)" + std::string(weights);
    run.level = "O0", run.dtype = "f32";
    expect_same_bits(run);
    run.level = "O2", run.dtype = "f16";
    expect_same_bits(run);
  }
}

// A mean over no labels is no loss, rather than 0 / 0.
TEST_F(CudaCapturedUpdates, ABatchWithoutALabelThatCountsChangesNothing) {
  for (const char* device : {"cpu", "cuda"})
    for (const char* dtype : {"f32", "f16"}) {
      test::PrecisionRun run = plain();
      run.device = device;
      run.dtype = dtype;
      run.level = run.dtype == "f16" ? "O2" : "O0";
      run.optimizer = R"({"type": "adamw", "lr": 0.1, "weight_decay": 0})";
      run.train = R"(}, "loss": {"type": "cross_entropy", "ignore_index": 3)";
      const auto session = run.session(folder_);
      std::unique_ptr<CapturedStep> replay;
      if (session->device().is_cuda()) replay = make_captured_step(*session);
      const std::string before = session->model_state.hash();
      data::Batch batch = test::noise_batch(0);
      batch["labels"].fill_(3);
      for (int step = 0; step < 4; ++step) {
        session->position.interval.samples +=
            (replay ? replay->run(std::span(&batch, 1)) : training_step(*session, std::span(&batch, 1))).samples;
        ++session->position.step;
      }
      session->read_interval();
      EXPECT_EQ(session->position.interval.loss_sum, 0) << device << " " << dtype;
      EXPECT_EQ(session->model_state.hash(), before) << device << " " << dtype;
    }
}

TEST_F(CudaCapturedUpdates, AnAverageOfTheWeightsIsNoNodeOfItsOwn) {
  test::PrecisionRun run = plain(), averaged = plain();
  averaged.train = R"(, "ema": 0.9)";
  EXPECT_EQ(after(averaged, true).nodes, after(run, true).nodes);
}

}  // namespace
}  // namespace hearth::train::captured_updates_test
