// SPDX-License-Identifier: Apache-2.0
// Training on a CUDA device, real or emulated: eager and replayed steps give the same bits, runs go on across devices,
// and a replayed step costs the host one launch.
#include <gtest/gtest.h>

#include <fstream>

#include "core/cuda/counters.h"
#include "tests/support/temp_dir.h"
#include "train/checkpoint/checkpoint.h"
#include "train/step/captured_step.h"
#include "train/step/visit_batches.h"

namespace hearth::train::captured_step_test {
namespace {

const std::string convolutional = R"({"type": "resnet", "blocks": [1, 1], "stem": "small", "width": 8})";
const std::string with_dropout = R"({"type": "mlp", "hidden": [32, 32], "dropout": 0.3})";

class CudaTraining : public ::testing::Test {
 protected:
  void SetUp() override {
    if (device_count(DeviceType::cuda) == 0) GTEST_SKIP() << "there is no CUDA device";
  }

  // A session on digits; `train` and `augment` are further members of those parts of the config.
  std::unique_ptr<Session> session(const std::string& device, const std::string& model, const std::string& train = "",
                                   const std::string& augment = "") {
    const std::string path = folder_ / "run.json";
    std::ofstream(path) << R"({"seed": 3, "device": ")" << device << R"(", "model": )" << model
                        << R"(, "data": {"type": "digits", "augment": {"padded_crop": 1)" << augment << R"(}},
      "optimizer": {"type": "sgd", "lr": 0.05, "momentum": 0.9, "nesterov": true, "weight_decay": 0.0005},
      "schedule": {"type": "cosine"}, "train": {"batch_size": 8, "steps": 12)"
                        << train << "}}";
    return std::make_unique<Session>(load_config(path, {}));
  }

  test::TempDir folder_;
};

// Runs `steps` steps and returns the SHA-256 of weights, of the rest of the state, and the loss sum.
struct Outcome {
  std::string weights, state;
  double loss = 0;
  bool operator==(const Outcome&) const = default;
};

template <class Step>
Outcome outcome_of(Session& session, int steps, Step&& step) {
  data::Loader loader = session.make_train_loader();
  const std::int64_t accumulate = session.config().train.accumulate;
  loader.seek(0, session.position.step * accumulate);
  for (int i = 0; i < steps; ++i) {
    std::vector<data::Batch> batches;
    for (std::int64_t k = 0; k < accumulate; ++k) batches.push_back(loader.next());
    session.position.interval.samples += step(batches).samples;
    ++session.position.step;
  }
  session.read_interval();
  return {session.model_state.hash(), session.training_state.hash(), session.position.interval.loss_sum};
}

Outcome eager(Session& session, int steps) {
  return outcome_of(session, steps, [&](std::span<const data::Batch> b) { return training_step(session, b); });
}

Outcome replayed(Session& session, int steps) {
  const auto captured = make_captured_step(session);
  const Outcome outcome = outcome_of(session, steps, [&](std::span<const data::Batch> b) { return captured->run(b); });
  EXPECT_EQ(captured->unsupported_reason(), "");
  EXPECT_GT(captured->nodes(), 0);
  return outcome;
}

// Models that are trained each way are in families_test.cpp.
TEST_F(CudaTraining, ReplayedStepsGiveTheBitsOfEagerOnes) {
  struct Run {
    std::string model, options;
  };
  for (const auto& [model, options] : {Run{convolutional, R"(, "accumulate": 3)"},
                                       {with_dropout, ""},
                                       {with_dropout, R"(, "clip_norm": 0.5, "ema": 0.9)"},
                                       {with_dropout, R"(, "accumulate": 3)"}}) {
    // From the third step on the graph is replayed.
    const Outcome a = eager(*session("cuda", model, options), 5);
    const Outcome b = replayed(*session("cuda", model, options), 5);
    EXPECT_EQ(a, b) << model << options;
  }
}

TEST_F(CudaTraining, ReplayedStepsEraseAndMixImages) {
  const std::string augment = R"(, "erasing": 0.5, "mixup": 0.4, "cutmix": 1.0)";
  const Outcome a = eager(*session("cuda", convolutional, R"(, "accumulate": 2)", augment), 5);
  EXPECT_EQ(replayed(*session("cuda", convolutional, R"(, "accumulate": 2)", augment), 5), a);
  const Outcome there = eager(*session("cuda", convolutional, "", augment), 6);
  const Outcome here = eager(*session("cpu", convolutional, "", augment), 6);
  EXPECT_NEAR(there.loss, here.loss, 1e-4 * here.loss);
}

TEST_F(CudaTraining, FollowsTheCpuWithinRounding) {
  const Outcome here = eager(*session("cpu", convolutional), 12);
  const Outcome there = eager(*session("cuda", convolutional), 12);
  EXPECT_NEAR(there.loss, here.loss, 1e-4 * here.loss);
  EXPECT_NE(there.loss, 0.0);
}

// Its targets are made from the labels where those lie.
TEST_F(CudaTraining, SquaredErrorTakesLabelsOnTheDevice) {
  const std::string mlp = R"({"type": "mlp", "hidden": [16]})", loss = R"(}, "loss": {"type": "mse")";
  const Outcome here = eager(*session("cpu", mlp, loss), 6), there = eager(*session("cuda", mlp, loss), 6);
  EXPECT_NEAR(there.loss, here.loss, 1e-4 * here.loss);
  EXPECT_EQ(replayed(*session("cuda", mlp, loss), 6), there);
}

// What a loss needs besides the batch, class weights or rows of labels, lies on the device: a step with it copies no
// more than one without.
TEST_F(CudaTraining, LossesCopyNothingIntoAStep) {
  const std::string mlp = R"({"type": "mlp", "hidden": [16]})";
  const std::string weights = R"(, "class_weights": [1, 2, 3, 4, 5, 6, 7, 8, 9, 10])";
  const auto copies_of = [&](const std::string& loss, const std::string& augment) {
    const auto run = session("cuda", mlp, R"(}, "loss": {"type": )" + loss, augment);
    data::Loader loader = run->make_train_loader();
    cuda::Counters before;
    for (int i = 0; i < 2; ++i) {
      const data::Batch batch = loader.next();
      before = cuda::counters();
      (void)training_step(*run, std::span(&batch, 1));
      ++run->position.step;
    }
    const cuda::Counters spent = cuda::counters() - before;
    EXPECT_EQ(spent.waits, 0) << loss;
    EXPECT_EQ(replayed(*session("cuda", mlp, R"(}, "loss": {"type": )" + loss, augment), 5),
              eager(*session("cuda", mlp, R"(}, "loss": {"type": )" + loss, augment), 5))
        << loss << augment;
    return spent.copies_in;
  };
  for (const char* augment : {"", R"(, "mixup": 0.4)"}) {
    const std::int64_t plain = copies_of(R"("cross_entropy")", augment);
    EXPECT_EQ(copies_of(R"("cross_entropy", "label_smoothing": 0.1)" + weights, augment), plain) << augment;
    EXPECT_EQ(copies_of(R"("focal")" + weights, augment), plain) << augment;
    for (const char* loss : {R"("mse")", R"("l1")", R"("huber")", R"("bce_with_logits", "positive_weight": 2)"})
      EXPECT_EQ(copies_of(loss, augment), plain) << loss << augment;
  }
}

TEST_F(CudaTraining, AReplayedStepIsOneLaunchAndNoWait) {
  const auto run = session("cuda", convolutional);
  const auto captured = make_captured_step(*run);
  data::Loader loader = run->make_train_loader();
  const auto step = [&] {
    const data::Batch batch = loader.next();
    (void)captured->run(std::span(&batch, 1));
    ++run->position.step;
  };
  for (int i = 0; i < 4; ++i) step();
  ASSERT_EQ(captured->unsupported_reason(), "");
  const cuda::Counters before = cuda::counters();
  constexpr int steps = 5;
  for (int i = 0; i < steps; ++i) step();
  const cuda::Counters spent = cuda::counters() - before;
  EXPECT_EQ(spent.graph_launches, steps);
  EXPECT_EQ(spent.launches, 0);
  EXPECT_EQ(spent.waits, 0);
  EXPECT_EQ(spent.allocations, 0);
  EXPECT_EQ(spent.pageable_copies, 0);
  EXPECT_EQ(spent.copies_out, 0);
  EXPECT_EQ(spent.layout_changes, 0);
}

TEST_F(CudaTraining, AnEagerStepWaitsForNothing) {
  // With HEARTH_MEMORY=system too there is a pool, without which each tensor is an allocation.
  const Device device{DeviceType::cuda, 0};
  const std::unique_ptr<MemoryResource> pool = make_pool_memory(memory_of(device), min_cuda_region);
  const DeviceMemoryScope scope(device, *pool);
  const auto run = session("cuda", convolutional);
  data::Loader loader = run->make_train_loader();
  const auto step = [&] {
    const data::Batch batch = loader.next();
    (void)training_step(*run, std::span(&batch, 1));
    ++run->position.step;
  };
  for (int i = 0; i < 2; ++i) step();
  const cuda::Counters before = cuda::counters();
  step();
  const cuda::Counters spent = cuda::counters() - before;
  EXPECT_EQ(spent.waits, 0);
  EXPECT_EQ(spent.allocations, 0);
  EXPECT_EQ(spent.pageable_copies, 0);
  EXPECT_EQ(spent.layout_changes, 0);
  EXPECT_GT(spent.launches, 0);
}

TEST_F(CudaTraining, AnEvaluationCopiesItsBatchesFromPinnedMemory) {
  const auto run = session("cuda", R"({"type": "mlp", "hidden": [16]})");
  const auto spent_by = [&](const auto& work) {
    const cuda::Counters before = cuda::counters();
    work();
    return cuda::counters() - before;
  };
  const cuda::Counters whole = spent_by([&] { (void)evaluate(*run, run->data.test); });
  EXPECT_EQ(whole.copies_out, 2) << "the sums";
  EXPECT_EQ(whole.pageable_copies, whole.copies_out);
  EXPECT_EQ(whole.waits, whole.copies_out);
  const cuda::Counters some = spent_by([&] { visit_batches(*run, run->data.test, 24, [](const data::Batch&) {}); });
  EXPECT_EQ(some.copies_in, 6) << "images and labels of three batches";
  EXPECT_EQ(some.pageable_copies, 0);
}

TEST_F(CudaTraining, GoesOnOnTheOtherDevice) {
  const std::string checkpoints = folder_ / "run";
  const auto first = session("cuda", convolutional);
  (void)eager(*first, 5);
  save_session(*first, checkpoints + "/checkpoints");
  const auto second = session("cpu", convolutional);
  EXPECT_EQ(restore_newest(*second, checkpoints).damaged.size(), 0u);
  EXPECT_EQ(second->position.step, 5);
  EXPECT_EQ(second->model_state.hash(), first->model_state.hash());
  EXPECT_EQ(second->training_state.hash(), first->training_state.hash());
  const Outcome there = eager(*first, 3), here = eager(*second, 3);
  EXPECT_NEAR(there.loss, here.loss, 1e-5 * here.loss);
}

TEST_F(CudaTraining, SaysWhichOperationKeepsAStepFromBeingRecorded) {
  const auto run = session("cuda", convolutional);
  run->loss = [loss = run->loss](const Tensor& outputs, const Tensor& labels) {
    const Tensor value = loss(outputs, labels);
    (void)value.item();
    return value;
  };
  const auto captured = make_captured_step(*run);
  const Outcome outcome = outcome_of(*run, 6, [&](std::span<const data::Batch> b) { return captured->run(b); });
  EXPECT_NE(captured->unsupported_reason().find("cannot be part of a recorded step"), std::string::npos)
      << captured->unsupported_reason();
  EXPECT_EQ(outcome, eager(*session("cuda", convolutional), 6));
}

TEST_F(CudaTraining, HooksHaveToAllowReplaysUnlessTheyAreAskedFor) {
  struct Quiet : Hook {
    bool allows_replay() const override { return true; }
  };
  for (const char* graph : {"", R"(, "graph": true)", R"(, "graph": false)"}) {
    const auto run = session("cuda", with_dropout, graph);
    const bool never = std::string(graph).find("false") != std::string::npos;
    EXPECT_EQ(why_not_replayed(*run), never ? "train.graph is false" : "");
    run->add_hook("quiet", std::make_unique<Quiet>());
    EXPECT_EQ(why_not_replayed(*run), never ? "train.graph is false" : "");
    run->add_hook("loud", std::make_unique<Hook>());
    EXPECT_EQ(why_not_replayed(*run).find("the hook \"loud\" may change"),
              std::string(graph).empty() ? 0 : std::string::npos);
  }
}

TEST_F(CudaTraining, ADivergedLossIsReportedWhenItIsRead) {
  const auto run = session("cuda", convolutional);
  run->model->parameters().front().tensor->fill_(std::numeric_limits<double>::infinity());
  EXPECT_THROW((void)eager(*run, 2), DivergedError);
}

}  // namespace
}  // namespace hearth::train::captured_step_test
