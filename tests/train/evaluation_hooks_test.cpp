// SPDX-License-Identifier: Apache-2.0
// What follows from the evaluations of a run: its end, and lower learning rates.
#include "train/evaluation_hooks.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "core/error.h"
#include "tests/support/error_message.h"
#include "tests/train/hook_run.h"

namespace hearth::train {
namespace {

using test::contains;
using test::HookRun;

/// Throws after the step `at`.
struct Failing : Hook {
  explicit Failing(std::int64_t when) : at(when) {}
  void after_step(Session& session, const StepResult&) override {
    if (session.position.step == at) throw std::out_of_range("the power is gone");
  }
  std::int64_t at;
};

std::function<void(Session&)> failing_at(std::int64_t step) {
  return [step](Session& session) { session.add_hook("failing", std::make_unique<Failing>(step)); };
}

class EvaluationHooks : public testing::Test, protected test::HookRuns {
 protected:
  /// A session whose hooks the test calls itself.
  Session session(const std::vector<std::string>& overrides) const {
    const std::string config = path("session.json");
    std::ofstream(config) << test::run_config;
    return Session(load_config(config, overrides));
  }
  /// Shows evaluations with these accuracies, one a step; what is left to do before a hook asks for the end, or -1.
  static std::int64_t stops_after(Session& session, const std::vector<double>& accuracies) {
    for (std::size_t i = 0; i < accuracies.size(); ++i) {
      ++session.position.step;
      show(session, accuracies[i], 1);
      if (!session.position.stop_reason.empty()) return static_cast<std::int64_t>(i) + 1;
    }
    return -1;
  }
  static void show(Session& session, double accuracy, double loss, const std::string& split = "valid") {
    const Meter meter{.loss_sum = loss * 1000, .correct = std::llround(accuracy * 1000), .samples = 1000};
    for (const NamedHook& one : session.hooks()) one.hook->after_evaluation(session, split, meter);
  }
};

using EarlyStopping = EvaluationHooks;

TEST_F(EarlyStopping, CountsEvaluationsWithoutImprovement) {
  const auto stops = [&](const std::string& options, const std::vector<double>& accuracies) {
    Session watched = session({"train.early_stopping=" + options, "train.epochs=100"});
    return stops_after(watched, accuracies);
  };
  EXPECT_EQ(stops("1", {0.5, 0.6, 0.7, 0.6}), 4);
  EXPECT_EQ(stops("2", {0.5, 0.4, 0.6, 0.6, 0.6}), 5);
  EXPECT_EQ(stops("3", {0.5, 0.4, 0.4, 0.6, 0.5, 0.5, 0.6}), 7);
  EXPECT_EQ(stops("3", {0.5, 0.4, 0.4, 0.6, 0.5, 0.5, 0.601}), -1);
  EXPECT_EQ(stops(R"({"patience": 2, "min_delta": 0.05})", {0.5, 0.54, 0.56, 0.6, 0.61}), 5);
  EXPECT_EQ(stops("null", {0.5, 0.4, 0.4, 0.4, 0.4}), -1);
}

TEST_F(EarlyStopping, WatchesTheValidSplitAndFiniteLosses) {
  Session watched = session({"train.early_stopping=2", "train.epochs=100"});
  show(watched, 0.5, 1);
  for (int i = 0; i < 5; ++i) show(watched, 0.1, 1, "test");
  EXPECT_EQ(watched.position.stop_reason, "");
  // More right, but what the loss says is no number.
  show(watched, 0.9, std::numeric_limits<double>::quiet_NaN());
  EXPECT_EQ(watched.position.stop_reason, "");
  show(watched, 0.9, std::numeric_limits<double>::infinity());
  EXPECT_PRED2(contains, watched.position.stop_reason, "no improvement in 2 evaluations");
  EXPECT_PRED2(contains, watched.position.stop_reason, "the best valid accuracy was 0.5 at step 0");
}

TEST_F(EarlyStopping, EndsARunAndGoesOnBitForBit) {
  // At this rate the accuracy of so few steps does not rise for long.
  const std::vector<std::string> changes{"train.early_stopping=2", "train.epochs=40", "optimizer.lr=0.8"};
  const HookRun whole = run("whole", changes);
  ASSERT_PRED2(contains, whole.result.stop_reason, "early stopping: no improvement in 2 evaluations");
  const std::int64_t end = whole.result.metrics.at("step").as_integer();
  ASSERT_GT(end, 9);
  ASSERT_LT(end, 120);
  EXPECT_EQ(whole.result.metrics.at("best_step").as_integer(), end - 6) << "3 steps an evaluation";
  // Stopped after each evaluation before the last: what was counted by then is in the checkpoint.
  for (const std::int64_t failure : {end - 4, end - 1}) {
    const std::string name = "failing" + std::to_string(failure);
    EXPECT_THROW((void)run(name, changes, failing_at(failure)), std::out_of_range);
    const HookRun resumed = run(name, changes);
    EXPECT_PRED2(contains, resumed.console, "resumed at step");
    EXPECT_EQ(resumed.hashes, whole.hashes);
    EXPECT_EQ(resumed.result.stop_reason, whole.result.stop_reason);
  }
  // The same weights as a run that was planned so, with the test split at its end.
  const std::vector<std::string> planned{"train.epochs=null", "train.steps=" + std::to_string(end), "optimizer.lr=0.8"};
  EXPECT_EQ(run("planned", planned).metric("weights_sha256"), whole.metric("weights_sha256"));
  EXPECT_NE(whole.metric("test_accuracy"), "");
}

TEST_F(EarlyStopping, GoesOnWithMorePatienceOrWithout) {
  const std::vector<std::string> common{"train.epochs=14", "optimizer.lr=0.8"};
  const auto with = [&](std::vector<std::string> more) {
    more.insert(more.end(), common.begin(), common.end());
    return more;
  };
  ASSERT_NE(run("run", with({"train.early_stopping=1"})).result.stop_reason, "");
  EXPECT_TRUE(run("run", with({"train.early_stopping=1"})).result.already_done);
  const HookRun whole = run("whole", common);
  const HookRun longer = run("run", with({"train.early_stopping=100"}));
  EXPECT_FALSE(longer.result.already_done);
  EXPECT_EQ(longer.result.stop_reason, "");
  EXPECT_EQ(longer.metric("weights_sha256"), whole.metric("weights_sha256"));
  EXPECT_EQ(info("run").at("metrics").find("stop_reason"), nullptr);
  ASSERT_NE(run("other", with({"train.early_stopping=1"})).result.stop_reason, "");
  const HookRun without = run("other", common);
  EXPECT_EQ(without.hashes, whole.hashes);
  // And a run without it goes on with it.
  EXPECT_EQ(run("whole", {"train.early_stopping=9", "train.epochs=15", "optimizer.lr=0.8"}).metric("step"), "45");
}

TEST_F(EarlyStopping, ConfigurationsAreChecked) {
  const auto refused = [&](const std::vector<std::string>& overrides) {
    return test::error_message<ConfigError>([&] { (void)run("bad", overrides); });
  };
  EXPECT_PRED2(contains, refused({"train.early_stopping=0"}), "/train/early_stopping/patience");
  EXPECT_PRED2(contains, refused({"train.early_stopping=1.5"}), "/train/early_stopping/patience");
  EXPECT_PRED2(contains, refused({R"(train.early_stopping={"patience": 2, "min_delta": -1})"}), "min_delta");
  EXPECT_PRED2(contains, refused({R"(train.early_stopping={"min_delta": 0.1})"}), "needs a patience");
  EXPECT_PRED2(contains, refused({R"(train.early_stopping={"patience": 2, "mode": "max"})"}), "mode");
  const std::string no_valid = refused({"train.early_stopping=2", "data.valid_fraction=0"});
  EXPECT_PRED2(contains, no_valid, "/train/early_stopping");
  EXPECT_PRED2(contains, no_valid, "valid_fraction");
}

}  // namespace
}  // namespace hearth::train
