// SPDX-License-Identifier: Apache-2.0
// The end of a run that has no step left: its evaluations come once, whatever made it the end.
#include <gtest/gtest.h>
#include <signal.h>

#include <filesystem>

#include "core/io/safetensors.h"
#include "tests/support/error_message.h"
#include "tests/train/hook_run.h"
#include "train/checkpoint/checkpoint_set.h"

namespace hearth::train::run_end_test {
namespace {

using test::contains;
using test::HookRun;

/// Stops the run after the step `at`, as a person does.
struct Interrupting : Hook {
  explicit Interrupting(std::int64_t when) : at(when) {}
  void after_step(Session& session, const StepResult&) override {
    if (session.position.step == at) raise(SIGTERM);
  }
  std::int64_t at;
};

/// Makes all weights equal and large after the step `at`, so that an earlier evaluation stays the best.
struct Spoiling : Hook {
  explicit Spoiling(std::int64_t when) : at(when) {}
  void after_step(Session& session, const StepResult&) override {
    if (session.position.step == at) session.parameters->values().fill_(3);
  }
  std::int64_t at;
};

/// Loses a checkpoint before the last evaluation.
struct Losing : Hook {
  explicit Losing(std::string path) : set(std::move(path)) {}
  void after_step(Session& session, const StepResult&) override {
    if (session.position.step == session.plan.total_steps) std::filesystem::remove_all(set);
  }
  std::string set;
};

class RunEnd : public testing::Test, protected test::HookRuns {
 protected:
  /// Stops the run in `name` after so many of its 12 steps, 3 an epoch.
  void stop(const std::string& name, std::int64_t step, const std::vector<std::string>& overrides = {}) const {
    const HookRun stopped = run(name, overrides, [&](Session& session) {
      session.add_hook("interrupting", std::make_unique<Interrupting>(step));
    });
    ASSERT_EQ(stopped.result.stop_signal, SIGTERM);
    ASSERT_EQ(info(name).at("status").as_string(), "stopped");
  }
  static std::vector<std::string> steps(std::int64_t count, std::vector<std::string> more = {}) {
    more.insert(more.end(), {"train.epochs=null", join_text("train.steps=", count)});
    return more;
  }
  /// "valid 3, test 12" of all evaluations in the metrics.
  std::string evaluations(const std::string& name) const {
    std::string text;
    for (const Json& record : metrics(name))
      if (const std::string split = record.at("split").as_string(); split != "train")
        text += join_text(text.empty() ? "" : ", ", split, " ", record.at("step").as_integer());
    return text;
  }
};

TEST_F(RunEnd, AStoppedRunThatIsCutShortIsEvaluated) {
  stop("run", 4);
  ASSERT_EQ(evaluations("run"), "valid 3");
  const HookRun cut = run("run", steps(4));
  EXPECT_FALSE(cut.result.already_done);
  EXPECT_EQ(evaluations("run"), "valid 3, valid 4, test 4");
  EXPECT_EQ(info("run").at("status").as_string(), "finished");
  const HookRun planned = run("planned", steps(4));
  for (const char* key : {"loss", "accuracy", "test_loss", "test_accuracy", "best_step", "step", "weights_sha256"})
    EXPECT_EQ(cut.metric(key), planned.metric(key)) << key;
  EXPECT_TRUE(run("run", steps(4)).result.already_done);
  EXPECT_EQ(evaluations("run"), "valid 3, valid 4, test 4");
}

TEST_F(RunEnd, OnlyTheTestSplitIsLeftWhereAnEpochHasEnded) {
  stop("run", 3);
  ASSERT_EQ(evaluations("run"), "valid 3");
  const HookRun cut = run("run", steps(3)), planned = run("planned", steps(3));
  EXPECT_EQ(evaluations("run"), "valid 3, test 3");
  for (const char* key : {"loss", "test_loss", "best_step", "weights_sha256"})
    EXPECT_EQ(cut.metric(key), planned.metric(key)) << key;
}

TEST_F(RunEnd, AFinishedRunThatWasMadeLongerAndStoppedIsEvaluatedAgain) {
  (void)run("run", steps(3));
  stop("run", 5, steps(9));
  EXPECT_EQ(evaluations("run"), "valid 3, test 3");
  (void)run("run", steps(5));
  EXPECT_EQ(evaluations("run"), "valid 3, test 3, valid 5, test 5");
}

TEST_F(RunEnd, TheTestSplitIsEvaluatedWithTheBestWeights) {
  for (const std::string average : {"null", "0.5"}) {
    const std::vector<std::string> ema{"train.ema=" + average};
    const auto spoil = [](Session& session) { session.add_hook("spoiling", std::make_unique<Spoiling>(10)); };
    const HookRun spoiled = run("spoiled" + average, ema, spoil), best = run("best" + average, steps(9, ema));
    ASSERT_EQ(spoiled.metric("best_step"), "9");
    ASSERT_EQ(best.metric("best_step"), "9");
    EXPECT_EQ(spoiled.metric("test_step"), "9");
    EXPECT_EQ(spoiled.metric("test_loss"), best.metric("test_loss"));
    EXPECT_EQ(spoiled.metric("test_accuracy"), best.metric("test_accuracy"));
    EXPECT_NE(spoiled.metric("loss"), best.metric("loss"));
    EXPECT_EQ(metrics("spoiled" + average).back().at("weights_step").as_integer(), 9);
    EXPECT_PRED2(contains, spoiled.console, "(of the best, that of step 9)");
    // The last weights are what they would have been.
    std::vector<std::string> none_kept = ema;
    none_kept.emplace_back("checkpoint.best=false");
    const HookRun last = run("last" + average, none_kept, spoil);
    EXPECT_EQ(last.metric("weights_sha256"), spoiled.metric("weights_sha256"));
    EXPECT_EQ(last.metric("test_step"), "12");
    EXPECT_NE(last.metric("test_loss"), best.metric("test_loss"));
  }
}

TEST_F(RunEnd, TheTestSplitIsEvaluatedWithTheLastWeightsWhereTheBestAreGone) {
  const HookRun spoiled = run("run", {}, [&](Session& session) {
    session.add_hook("spoiling", std::make_unique<Spoiling>(10));
    session.add_hook("losing", std::make_unique<Losing>(path("run/checkpoints/") + checkpoint_name(9)));
  });
  EXPECT_EQ(spoiled.metric("best_step"), "9");
  EXPECT_EQ(spoiled.metric("test_step"), "12");
  EXPECT_PRED2(contains, spoiled.console, "warning: the test split is evaluated with the last weights");
}

TEST_F(RunEnd, ARunThatWasKilledAfterItsLastCheckpointIsNotEvaluatedAgain) {
  for (const char* splits : {"seed=3", "data.valid_fraction=0"}) {
    const std::string name = std::string("run") + splits;
    const HookRun first = run(name, {splits});
    const std::string written = read_text(path(name + "/metrics.jsonl"));
    std::ofstream(path(name + "/run.json")) << R"({"status": "running"})";
    const HookRun again = run(name, {splits});
    EXPECT_FALSE(again.result.already_done) << "it was not known to be finished";
    EXPECT_EQ(again.hashes, first.hashes);
    EXPECT_EQ(read_text(path(name + "/metrics.jsonl")), written);
    EXPECT_EQ(info(name).at("status").as_string(), "finished");
  }
}

TEST_F(RunEnd, CheckpointsThatDoNotTellTheLastEvaluationGoOn) {
  const HookRun whole = run("whole");
  stop("run", 5);
  const std::string checkpoints = path("run/checkpoints"), set = checkpoints + "/" + checkpoint_name(5);
  {
    const SafetensorsFile state(set + "/state.safetensors");
    std::vector<std::vector<std::byte>> contents;
    std::vector<SafetensorsEntry> entries;
    for (const TensorRecord& record : state.records()) {
      if (record.name == "position.evaluated_step") continue;
      std::vector<std::byte>& bytes = contents.emplace_back(record.end - record.begin);
      state.read(record, bytes);
      entries.push_back({record.name, record.dtype, record.shape, bytes});
    }
    ASSERT_EQ(entries.size() + 1, state.records().size());
    CheckpointWriter writer(checkpoints, 5);
    for (const std::string& name : list_directory(set))
      if (name != "manifest.json" && name != "state.safetensors")
        write_file_synced(writer.file(name), read_text(set + "/" + name));
    write_safetensors(writer.file("state.safetensors"), entries, state.metadata());
    const Json notes = notes_of_checkpoint(set);
    for (const JsonMember& note : notes.members()) writer.note(note.key, note.value);
    writer.commit();
  }
  const HookRun resumed = run("run");
  EXPECT_PRED2(contains, resumed.console, "resumed at step 5");
  EXPECT_EQ(resumed.hashes, whole.hashes);
}

}  // namespace
}  // namespace hearth::train::run_end_test
