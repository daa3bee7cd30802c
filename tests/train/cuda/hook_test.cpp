// SPDX-License-Identifier: Apache-2.0
// Hooks of a run whose steps are replayed: they run on the host between the replays, and the learning rate that they
// change reaches the device.
#include <gtest/gtest.h>

#include "core/cuda/counters.h"
#include "tests/support/error_message.h"
#include "tests/train/hook_run.h"

namespace hearth::train::hook_test {
namespace {

using test::HookRun;

/// Another rate in every step, made of what earlier steps were given.
struct Wandering : Hook {
  void register_state(State& state, const std::string& prefix) override { state.add(prefix + "last", &last); }
  double lr(const Session&, std::int64_t step, double lr) const override {
    return lr * (step % 3 == 0 ? 1.0 : 0.25) + 0.1 * last;
  }
  void after_step(Session&, const StepResult& step) override { last = step.lr; }
  double last = 0;
};

class CudaHooks : public testing::Test, protected test::HookRuns {
 protected:
  void SetUp() override {
    if (device_count(DeviceType::cuda) == 0) GTEST_SKIP() << "there is no CUDA device";
  }
};

TEST_F(CudaHooks, ChangeTheLearningRateOfReplayedSteps) {
  const auto wandering = [](Session& session) { session.add_hook("own", std::make_unique<Wandering>()); };
  const HookRun eager = run("eager", {"device=cuda"}, wandering);
  EXPECT_PRED2(test::contains, eager.console, "one by one, as the hook \"own\" may change what a step does");
  const HookRun replayed = run("replayed", {"device=cuda", "train.graph=true"}, wandering);
  EXPECT_EQ(replayed.console.find("not replayed"), std::string::npos) << replayed.console;
  EXPECT_EQ(replayed.hashes, eager.hashes);
  EXPECT_NE(run("without", {"device=cuda", "train.graph=true"}).metric("weights_sha256"),
            eager.metric("weights_sha256"));
}

TEST_F(CudaHooks, EvaluationsLowerTheRateOfReplayedStepsAndEndThem) {
  const std::vector<std::string> changes{"device=cuda",
                                         "optimizer.lr=0.8",
                                         "train.epochs=20",
                                         R"(train.reduce_lr_on_plateau={"patience": 0, "factor": 0.5})",
                                         "train.early_stopping=3",
                                         "log.every_steps=1"};
  std::vector<std::string> one_by_one = changes;
  one_by_one.emplace_back("train.graph=false");
  const auto replays = [] { return cuda::counters().graph_launches; };
  const std::int64_t before = replays();
  const HookRun eager = run("eager", one_by_one);
  EXPECT_EQ(replays(), before);
  const HookRun replayed = run("replayed", changes);
  EXPECT_GT(replays(), before) << "by itself";
  EXPECT_EQ(replayed.console.find("graph: "), std::string::npos) << replayed.console;
  EXPECT_EQ(replayed.hashes, eager.hashes);
  EXPECT_EQ(replayed.result.stop_reason, eager.result.stop_reason);
  EXPECT_NE(eager.result.stop_reason, "");
  double least = 1;
  for (const Json& record : metrics("replayed"))
    if (record.find("lr") != nullptr) least = std::min(least, record.at("lr").as_number());
  EXPECT_LE(least, 0.4);
}

}  // namespace
}  // namespace hearth::train::hook_test
