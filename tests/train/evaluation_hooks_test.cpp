// SPDX-License-Identifier: Apache-2.0
// What follows from the evaluations of a run: its end, and lower learning rates.
#include "train/evaluation_hooks.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "core/creation.h"
#include "core/error.h"
#include "models/nn/nn.h"
#include "models/registry.h"
#include "ops/ops.h"
#include "tests/support/error_message.h"
#include "tests/train/hook_run.h"
#include "train/task/classification.h"

namespace hearth::train::evaluation_hooks_test {
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
  EXPECT_PRED2(contains, watched.position.stop_reason, "the best valid accuracy was 0.5, first at step 0");
}

TEST_F(EarlyStopping, PassesOverAnEvaluationInWhichNoLabelCounts) {
  Session watched = session({"train.early_stopping=2", "train.epochs=100"});
  show(watched, 0.5, 1);
  for (int i = 0; i < 5; ++i)
    for (const NamedHook& hook : watched.hooks()) hook.hook->after_evaluation(watched, "valid", Meter{});
  EXPECT_EQ(watched.position.stop_reason, "");
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

/// A linear map whose outputs have noise, in evaluations too.
struct Noisy : nn::Module {
  nn::Linear out{64, 10};
  Noisy() { register_module("out", out); }
  Tensor forward(const Tensor& x) override {
    const Tensor y = out(flatten(x, 1));
    return add(y, randn(y.shape()));
  }
};

TEST_F(EarlyStopping, OfAModelThatDrawsIsThatOfTheSeed) {
  models::add("test_noisy", [](const models::InputInfo&) { return std::make_unique<Noisy>(); });
  const std::vector<std::string> changes{R"(model={"type": "test_noisy"})", "train.early_stopping=2", "train.epochs=40",
                                         "optimizer.lr=0.8", "eval.batch_size=50"};
  const auto evaluations = [&](const std::string& name) {
    std::string all;
    for (const Json& record : metrics(name))
      if (record.find("loss") != nullptr) all += to_text(record.at("step")) + " " + to_text(record.at("loss")) + "\n";
    return all;
  };
  const HookRun first = run("first", changes);
  const std::int64_t end = first.result.metrics.at("step").as_integer();
  ASSERT_LT(end, 120);
  ASSERT_GT(end, 6);
  (void)randn({100});
  const HookRun again = run("again", changes);
  EXPECT_EQ(evaluations("again"), evaluations("first"));
  EXPECT_EQ(again.hashes, first.hashes);
  EXPECT_THROW((void)run("resumed", changes, failing_at(end - 1)), std::out_of_range);
  const HookRun resumed = run("resumed", changes);
  EXPECT_PRED2(contains, resumed.console, "resumed at step");
  EXPECT_EQ(evaluations("resumed"), evaluations("first"));
  EXPECT_EQ(resumed.hashes, first.hashes);
  EXPECT_EQ(resumed.metric("best_loss"), first.metric("best_loss"));
  EXPECT_NE(run("other",
                [&] {
                  std::vector<std::string> other = changes;
                  other.emplace_back("seed=4");
                  return other;
                }())
                .hashes,
            first.hashes);
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

// A shorter run evaluates at its end, where the longer one does not.
TEST_F(EarlyStopping, DoesNotCountWhatOnlyTheEndOfARunAsksFor) {
  const std::vector<std::string> changes{"train.early_stopping=2", "train.epochs=40", "optimizer.lr=0.8"};
  const std::string end = run("whole", changes).metric("step");
  for (const std::int64_t before : {2, 4}) {
    const std::string name = join_text("before", before), length = join_text("train.steps=", std::stoll(end) - before);
    (void)run(name, {"train.early_stopping=2", "train.epochs=null", length, "optimizer.lr=0.8"});
    EXPECT_EQ(run(name, changes).metric("step"), end) << length;
  }
}

using Plateau = EvaluationHooks;

/// Evaluations are compared by their loss.
struct ByLoss : ClassificationTask {
  using ClassificationTask::ClassificationTask;
  bool best_by_loss() const override { return true; }
};

// As torch.optim.lr_scheduler.ReduceLROnPlateau of PyTorch 2.15 gives them, mode "max" and for losses "min".
TEST_F(Plateau, LowersRatesAsPyTorchDoes) {
  const std::vector<double> accuracies{0.5, 0.6, 0.6, 0.59, 0.6, 0.61, 0.61, 0.61, 0.61, 0.62,
                                       0.6, 0.6, 0.6, 0.6,  0.6, 0.6,  0.6,  0.6,  0.6};
  const std::vector<double> losses{2.0, 1.5, 1.49999, 1.6, 1.4, 1.45, 1.4, 1.3999, 1.3, 1.29, 1.31, 1.3, 1.3};
  const auto rates = [&](const std::string& options, const std::vector<double>& shown, bool by_loss) {
    Session watched = session({"train.reduce_lr_on_plateau=" + options});
    if (by_loss) watched.task = std::make_unique<ByLoss>(watched.data);
    std::vector<double> result;
    for (const double value : shown) {
      show(watched, by_loss ? 0.1 : value, by_loss ? value : 1);
      show(watched, 0.99, 0.01, "test");  // counts for nothing
      result.push_back(watched.lr(0));
    }
    return result;
  };
  const auto expect = [&](const std::vector<double>& found, const std::vector<double>& torch) {
    ASSERT_EQ(found.size(), torch.size());
    for (std::size_t i = 0; i < torch.size(); ++i) EXPECT_NEAR(found[i], torch[i], 1e-14) << i;
  };
  expect(rates(R"({"patience": 2, "factor": 0.5})", accuracies, false),
         {0.1, 0.1, 0.1, 0.1, 0.05, 0.05, 0.05, 0.05, 0.025, 0.025, 0.025, 0.025, 0.0125, 0.0125, 0.0125, 0.00625,
          0.00625, 0.00625, 0.003125});
  expect(rates(R"({"patience": 1, "cooldown": 2, "min_lr": 0.001})", accuracies, false),
         {0.1, 0.1, 0.1, 0.01, 0.01, 0.01, 0.01, 0.001, 0.001, 0.001, 0.001, 0.001, 0.001, 0.001, 0.001, 0.001, 0.001,
          0.001, 0.001});
  expect(rates(R"({"patience": 1, "factor": 0.2})", losses, true),
         {0.1, 0.1, 0.1, 0.02, 0.02, 0.02, 0.004, 0.004, 0.004, 0.004, 0.004, 0.0008, 0.0008});
  expect(rates(R"({"patience": 0, "factor": 0.5, "threshold": 0.05})", losses, true),
         {0.1, 0.1, 0.05, 0.025, 0.025, 0.0125, 0.00625, 0.003125, 0.003125, 0.0015625, 0.00078125, 0.000390625,
          0.0001953125});
}

TEST_F(Plateau, MultipliesTheSchedulesRate) {
  Session watched = session({R"(train.reduce_lr_on_plateau={"patience": 0, "factor": 0.5, "min_lr": 0.02})",
                             R"(schedule={"type": "constant", "warmup_steps": 10})"});
  const auto expect = [&](double first, double last) {
    EXPECT_DOUBLE_EQ(watched.lr(0), first);
    EXPECT_DOUBLE_EQ(watched.lr(11), last);
  };
  show(watched, 0.5, 1);
  expect(0.01, 0.1);
  show(watched, 0.5, 1);
  // min_lr raises no rate that the schedule has below it.
  expect(0.01, 0.05);
  show(watched, 0.5, 1);
  expect(0.01, 0.025);
  show(watched, 0.5, 1);
  expect(0.01, 0.02);
}

TEST_F(Plateau, GoesOnBitForBit) {
  const std::vector<std::string> changes{R"(train.reduce_lr_on_plateau={"patience": 0, "factor": 0.5, "cooldown": 1})",
                                         "train.epochs=12", "optimizer.lr=0.8"};
  const HookRun whole = run("whole", changes);
  std::vector<double> rates;
  for (const Json& record : metrics("whole"))
    if (record.find("lr") != nullptr) rates.push_back(record.at("lr").as_number());
  ASSERT_LT(rates.back(), 0.4) << "two reductions at least";
  for (const std::int64_t failure : {11, 29}) {
    const std::string name = "failing" + std::to_string(failure);
    EXPECT_THROW((void)run(name, changes, failing_at(failure)), std::out_of_range);
    EXPECT_EQ(run(name, changes).hashes, whole.hashes);
  }
  // Its options change numbers, so that another run cannot go on.
  EXPECT_PRED2(contains, test::error_message<ConfigError>([&] { (void)run("whole", {"train.epochs=13"}); }),
               "/train/reduce_lr_on_plateau");
  std::vector<std::string> rarer = changes;
  rarer.emplace_back("eval.every_epochs=2");
  EXPECT_PRED2(contains, test::error_message<ConfigError>([&] { (void)run("whole", rarer); }), "/eval/every_epochs");
}

// As above, also where the end is that of an epoch that is not evaluated.
TEST_F(Plateau, DoesNotCountWhatOnlyTheEndOfARunAsksFor) {
  for (const std::string every : {"eval.every_epochs=1", "eval.every_epochs=2"}) {
    const auto with = [&](std::vector<std::string> length) {
      length.insert(length.end(), {R"(train.reduce_lr_on_plateau={"patience": 0, "factor": 0.5, "cooldown": 1})", every,
                                   "optimizer.lr=0.8"});
      return length;
    };
    const std::vector<std::string> whole = with({"train.epochs=16"});
    const std::string weights = run("whole" + every, whole).metric("weights_sha256");
    for (const char* steps : {"5", "9", "16", "27"}) {
      const std::string name = steps + every;
      (void)run(name, with({"train.epochs=null", join_text("train.steps=", steps)}));
      EXPECT_EQ(run(name, whole).metric("weights_sha256"), weights) << every << ", first for " << steps << " steps";
    }
  }
}

TEST_F(EvaluationHooks, AScheduleOverAllStepsSaysWhereItsRateGoesOn) {
  const std::string cosine = R"(schedule={"type": "cosine"})";
  (void)run("cosine", {cosine});
  EXPECT_PRED2(
      contains, run("cosine", {cosine, "train.epochs=8"}).console,
      "warning: the run is of 24 steps now and was of 12, so the schedule cosine goes on at 0.5 of the learning "
      "rate, where it was at 0\n");
  (void)run("constant");
  EXPECT_EQ(run("constant", {"train.epochs=8"}).console.find("warning"), std::string::npos);
}

TEST_F(Plateau, ConfigurationsAreChecked) {
  const auto refused = [&](const std::string& options, const std::string& more = "seed=3") {
    return test::error_message<ConfigError>([&] { (void)run("bad", {"train.reduce_lr_on_plateau=" + options, more}); });
  };
  EXPECT_PRED2(contains, refused("-1"), "/train/reduce_lr_on_plateau/patience");
  EXPECT_PRED2(contains, refused(R"({"patience": 2, "factor": 1})"), "factor");
  EXPECT_PRED2(contains, refused(R"({"patience": 2, "threshold": -0.1})"), "threshold");
  EXPECT_PRED2(contains, refused(R"({"patience": 2, "min_lr": -1})"), "min_lr");
  EXPECT_PRED2(contains, refused(R"({"patience": 2, "cooldown": 0.5})"), "cooldown");
  EXPECT_PRED2(contains, refused(R"({"factor": 0.5})"), "need a patience");
  EXPECT_PRED2(contains, refused("2", "data.valid_fraction=0"), "valid_fraction");
}

}  // namespace
}  // namespace hearth::train::evaluation_hooks_test
