// SPDX-License-Identifier: Apache-2.0
// Hooks: the order of their calls, state that goes on bit for bit, learning rates, the end that one asks for, and what
// one throws.
#include "train/hook.h"

#include <gtest/gtest.h>

#include <stdexcept>

#include "core/error.h"
#include "tests/support/error_message.h"
#include "tests/train/hook_run.h"

namespace hearth::train::hook_test {
namespace {

using test::contains;
using test::HookRun;

using Calls = std::vector<std::string>;

/// Writes down its calls.
struct Recording : Hook {
  Recording(std::string name, Calls& into) : name_(std::move(name)), calls_(into) {}
  double lr(const Session&, std::int64_t, double lr) const override {
    add("lr");
    return lr;
  }
  void before_step(Session& session, std::span<const data::Batch> batches) override {
    add(join_text("before ", session.position.step, " of ", batches.size(), "x", batches[0].size()));
  }
  void after_step(Session& session, const StepResult& step) override {
    add(join_text("after ", session.position.step, " of ", step.samples));
  }
  void after_epoch(Session&, std::int64_t epoch) override { add(join_text("epoch ", epoch)); }
  void after_evaluation(Session&, const std::string& split, const Meter& meter) override {
    add(join_text(split, " ", meter.samples));
  }
  void after_checkpoint(const Session&, const std::string& set) override {
    add("checkpoint " + set.substr(set.rfind('/') + 1));
    EXPECT_TRUE(file_exists(set + "/manifest.json"));
  }

 private:
  void add(const std::string& call) const { calls_.push_back(name_ + call); }

  std::string name_;
  Calls& calls_;
};

/// Lets the learning rate fall by its own count of steps, a sum that only its state holds. Throws in step `fails_at`.
struct Falling : Hook {
  explicit Falling(std::int64_t when = -1) : fails_at(when) {}
  void register_state(State& state, const std::string& prefix) override {
    state.add(prefix + "sum", &sum);
    state.add(prefix + "count", &count);
  }
  double lr(const Session&, std::int64_t, double lr) const override { return lr / (1 + sum.item()); }
  void after_step(Session& session, const StepResult& step) override {
    if (session.position.step == fails_at) throw std::out_of_range("the hook had enough");
    ++count;
    sum.copy_from(Tensor::of<double>({1}, {sum.item() + 0.3 / static_cast<double>(count) + step.lr}));
  }

  Tensor sum = Tensor::zeros({1}, DType::f64);
  std::int64_t count = 0;
  std::int64_t fails_at;
};

/// Asks for the end after a step, or after an evaluation where `in_evaluation`.
struct Stopping : Hook {
  Stopping(std::int64_t when, bool evaluation = false) : at(when), in_evaluation(evaluation) {}
  void after_step(Session& session, const StepResult&) override {
    if (!in_evaluation && session.position.step == at) session.request_stop("enough is enough");
    if (!in_evaluation && session.position.step == at) session.request_stop("another reason");
  }
  void after_evaluation(Session& session, const std::string&, const Meter&) override {
    if (in_evaluation && session.position.step >= at) session.request_stop("enough is enough");
  }
  std::int64_t at;
  bool in_evaluation;
};

template <class T, class... Arguments>
std::function<void(Session&)> with(Arguments... arguments) {
  return [=](Session& session) { session.add_hook("own", std::make_unique<T>(arguments...)); };
}

class Hooks : public testing::Test, protected test::HookRuns {};

TEST_F(Hooks, AreCalledInOrder) {
  Calls calls;
  (void)run("run", {"train.epochs=2", "train.accumulate=2", "checkpoint.best=false"}, [&](Session& session) {
    session.add_hook("a", std::make_unique<Recording>("a:", calls));
    session.add_hook("b", std::make_unique<Recording>("b:", calls));
  });
  // 3 batches an epoch: the second of 3 steps ends the first epoch, the third the second.
  const Calls both{"before 0 of 2x400",
                   "lr",
                   "after 1 of 800",
                   "before 1 of 2x400",
                   "lr",
                   "after 2 of 800",
                   "epoch 1",
                   "valid 144",
                   "checkpoint step-00000002",
                   "before 2 of 2x400",
                   "lr",
                   "after 3 of 800",
                   "epoch 2",
                   "valid 144",
                   "test 360",
                   "checkpoint step-00000003"};
  Calls expected;
  for (const std::string& call : both)
    for (const char* name : {"a:", "b:"}) expected.push_back(name + call);
  EXPECT_EQ(calls, expected);
}

TEST_F(Hooks, StateGoesOnBitForBit) {
  const HookRun whole = run("whole", {}, with<Falling>());
  // Fails between the checkpoints of steps 3 and 6.
  EXPECT_THROW((void)run("failing", {}, with<Falling>(std::int64_t{5})), std::out_of_range);
  EXPECT_EQ(info("failing").at("status").as_string(), "failed");
  const HookRun resumed = run("failing", {}, with<Falling>());
  EXPECT_PRED2(contains, resumed.console, "resumed at step 3");
  EXPECT_EQ(resumed.hashes, whole.hashes);
  EXPECT_NE(run("without").metric("weights_sha256"), whole.metric("weights_sha256"));
  // Nothing is left out silently.
  EXPECT_PRED2(contains, test::error_message<FileError>([&] { (void)run("failing", {"train.epochs=5"}); }),
               "hooks.own.count");
}

TEST_F(Hooks, ChangeTheLearningRateOfSteps) {
  struct Double : Hook {
    double lr(const Session&, std::int64_t step, double lr) const override { return lr * (step < 2 ? 2 : 1); }
  };
  struct Add : Hook {
    double lr(const Session&, std::int64_t, double lr) const override { return lr + 0.5; }
  };
  const auto in_order = [](Session& session) {
    session.add_hook("double", std::make_unique<Double>());
    session.add_hook("add", std::make_unique<Add>());
  };
  (void)run("run", {"train.epochs=1", "log.every_steps=1"}, in_order);
  std::vector<double> rates;
  for (const Json& record : metrics("run"))
    if (record.find("lr") != nullptr) rates.push_back(record.at("lr").as_number());
  EXPECT_EQ(rates, (std::vector<double>{0.2 + 0.5, 0.2 + 0.5, 0.1 + 0.5}));
  struct Negative : Hook {
    double lr(const Session&, std::int64_t, double) const override { return -1; }
  };
  EXPECT_PRED2(contains, test::error_message<UsageError>([&] { (void)run("negative", {}, with<Negative>()); }), "-1");
}

TEST_F(Hooks, EndTheRunAsItsPlanDoes) {
  const HookRun planned = run("planned", {"train.epochs=null", "train.steps=4"});
  const HookRun stopped = run("stopped", {}, with<Stopping>(std::int64_t{4}));
  EXPECT_EQ(stopped.hashes, planned.hashes);
  EXPECT_EQ(stopped.result.stop_reason, "enough is enough");
  EXPECT_EQ(stopped.result.stop_signal, 0);
  EXPECT_PRED2(contains, stopped.console, "stopped at step 4: enough is enough");
  for (const char* key : {"loss", "accuracy", "test_loss", "test_accuracy", "best_step", "step"})
    EXPECT_EQ(stopped.metric(key), planned.metric(key)) << key;
  EXPECT_EQ(info("stopped").at("status").as_string(), "finished");
  EXPECT_EQ(info("stopped").at("metrics").at("stop_reason").as_string(), "enough is enough");
  EXPECT_EQ(metrics("stopped").back().at("stop_reason").as_string(), "enough is enough");
  EXPECT_EQ(metrics("stopped").size(), metrics("planned").size() + 1);
  EXPECT_TRUE(file_exists(path("stopped/checkpoints/step-00000004/manifest.json")));
  EXPECT_EQ(planned.metric("stop_reason"), "");
}

TEST_F(Hooks, TheReportSaysWhyARunEnded) {
  (void)run("run", {"log.report=true", "train.epochs=2"}, with<Stopping>(std::int64_t{4}));
  EXPECT_PRED2(contains, read_text(path("run/report.html")), "&middot; enough is enough</p>");
}

TEST_F(Hooks, AStoppedRunStaysStopped) {
  const HookRun first = run("run", {}, with<Stopping>(std::int64_t{6}, true));
  EXPECT_EQ(first.metric("step"), "6");
  const std::string written = read_text(path("run/metrics.jsonl"));
  // The hook that ended it would not do so again.
  const HookRun again = run("run", {}, with<Stopping>(std::int64_t{100}));
  EXPECT_TRUE(again.result.already_done);
  EXPECT_EQ(again.hashes, first.hashes);
  EXPECT_EQ(again.result.stop_reason, "enough is enough");
  // As if it had been killed between its last checkpoint and the end.
  std::ofstream(path("run/run.json")) << R"({"status": "running"})";
  const HookRun killed = run("run", {}, with<Stopping>(std::int64_t{100}));
  EXPECT_EQ(killed.hashes, first.hashes);
  EXPECT_EQ(info("run").at("status").as_string(), "finished");
  EXPECT_EQ(info("run").at("metrics").at("stop_reason").as_string(), "enough is enough");
  EXPECT_EQ(read_text(path("run/metrics.jsonl")), written);
}

TEST_F(Hooks, AnEvaluationThatEndsTheRunIsLogged) {
  // log.every_steps is 2: the interval of step 9 is written because the run ends there.
  (void)run("run", {}, with<Stopping>(std::int64_t{9}, true));
  const std::vector<Json> records = metrics("run");
  ASSERT_GE(records.size(), 4u);
  const auto split = [&](std::size_t from_end) {
    const Json& record = records[records.size() - from_end];
    EXPECT_EQ(record.at("step").as_integer(), 9);
    return record.at("split").as_string() + (record.find("lr") != nullptr ? " interval" : "");
  };
  EXPECT_EQ((Calls{split(4), split(3), split(2), split(1)}), (Calls{"valid", "test", "train interval", "train"}));
  // At the end of the plan there is nothing to end.
  EXPECT_EQ(run("whole", {}, with<Stopping>(std::int64_t{12})).result.stop_reason, "");
}

TEST_F(Hooks, MisuseIsRefused) {
  const auto message = [&](const std::string& name, std::unique_ptr<Hook> hook) {
    return test::error_message<UsageError>([&] {
      (void)run("run", {}, [&](Session& session) {
        session.add_hook("taken", std::make_unique<Hook>());
        session.add_hook(name, std::move(hook));
      });
    });
  };
  EXPECT_PRED2(contains, message("own", nullptr), "\"own\"");
  EXPECT_PRED2(contains, message("", std::make_unique<Hook>()), "empty");
  EXPECT_PRED2(contains, message("taken", std::make_unique<Hook>()), "taken");
  EXPECT_PRED2(contains, test::error_message<UsageError>([&] {
                 (void)run("run", {}, [](Session& session) { session.request_stop(""); });
               }),
               "reason");
  struct Twice : Hook {
    void register_state(State& state, const std::string& prefix) override {
      state.add(prefix + "a", &value);
      state.add(prefix + "a", &value);
    }
    std::int64_t value = 0;
  };
  EXPECT_PRED2(contains, test::error_message<UsageError>([&] { (void)run("run", {}, with<Twice>()); }), "hooks.own.a");
}

struct ScaleOptions {
  double by = 1;
};
void describe(Fields<ScaleOptions>& f) { f.number("by", &ScaleOptions::by, {.above = 0}, "Factor on the rate."); }

struct Scale : Hook {
  explicit Scale(double factor) : by(factor) {}
  void register_state(State& state, const std::string& prefix) override { state.add(prefix + "by", &by); }
  double lr(const Session&, std::int64_t, double lr) const override { return lr * by; }
  double by;
};

TEST_F(Hooks, AreNamedInConfigurations) {
  if (hooks().find("scale") == nullptr)
    hooks().add<ScaleOptions>("scale", "Scales the rate.", [](const ScaleOptions& o) -> std::unique_ptr<Hook> {
      return std::make_unique<Scale>(o.by);
    });
  const std::string given = R"(hooks=[{"type": "scale", "by": 3}, {"type": "scale", "by": 0.5}])";
  const HookRun scaled = run("scaled", {"train.epochs=1", given}, [](const Session& session) {
    ASSERT_EQ(session.hooks().size(), 2u);
    EXPECT_EQ(session.hooks()[0].name, "scale");
    EXPECT_EQ(session.hooks()[1].name, "scale_2");
    EXPECT_DOUBLE_EQ(session.lr(0), 0.15);
  });
  const HookRun same = run("same", {"train.epochs=1", "optimizer.lr=0.15"});
  EXPECT_EQ(scaled.metric("weights_sha256"), same.metric("weights_sha256"));
  // Another hook would give other numbers.
  EXPECT_PRED2(contains, test::error_message<ConfigError>([&] { (void)run("scaled", {"train.epochs=2"}); }), "/hooks");
  const auto refused = [&](const std::string& value) {
    return test::error_message<ConfigError>([&] { (void)run("bad", {"hooks=" + value}); });
  };
  EXPECT_PRED2(contains, refused(R"([{"type": "scales"}])"), "scale");
  EXPECT_PRED2(contains, refused(R"([{"type": "scale", "by": 0}])"), "/hooks/0/by");
  EXPECT_PRED2(contains, refused(R"([{"type": "scale", "factor": 2}])"), "/hooks/0/factor");
  EXPECT_PRED2(contains, refused(R"([{"by": 2}])"), "/hooks/0/type");
  EXPECT_PRED2(contains, refused(R"({"type": "scale"})"), "/hooks");
}

TEST_F(Hooks, SurviveARestartOfTheSession) {
  const HookRun whole = run("whole", {}, with<Falling>());
  const HookRun restarted = run("restarted", {}, [](Session& session) {
    with<Falling>()(session);
    session.restart();
  });
  EXPECT_EQ(restarted.hashes, whole.hashes);
}

}  // namespace
}  // namespace hearth::train::hook_test
