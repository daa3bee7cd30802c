// SPDX-License-Identifier: Apache-2.0
// Nothing that a run wrote, and nothing of the user's, is lost by a command: runs that go on here or elsewhere, damaged
// checkpoints, two runs in one folder, folders of other things, failures and power cuts.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <limits>
#include <thread>

#include "core/io/file.h"
#include "core/io/json_text.h"
#include "tests/support/error_message.h"
#include "tests/support/places.h"
#include "tests/support/run_program.h"
#include "train/checkpoint/checkpoint.h"
#include "train/checkpoint/checkpoint_set.h"
#include "train/checkpoint/run_folder.h"
#include "train/cli/cli.h"
#include "train/report/metrics_log.h"

namespace {

/// Names of the files that this process synced, in order, while they are wanted.
std::vector<std::string>* synced = nullptr;

}  // namespace

// In place of the C library's, so that a test sees what would outlive a power cut.
extern "C" __attribute__((visibility("default"))) int fsync(int descriptor) {
  if (synced != nullptr) {
    std::error_code unnamed;
    const auto link = "/proc/self/fd/" + std::to_string(descriptor);
    synced->push_back(std::filesystem::read_symlink(link, unnamed).filename().string());
  }
  return static_cast<int>(syscall(SYS_fsync, descriptor));
}

namespace hearth::train {
namespace {

namespace fs = std::filesystem;
using test::contains;
using test::ProgramResult;

// 22 steps an epoch.
const char* const small = R"({
  "name": "small", "device": "cpu",
  "model": {"type": "mlp", "hidden": [16]},
  "data": {"type": "digits", "workers": 0},
  "optimizer": {"type": "sgd", "lr": 0.1},
  "train": {"batch_size": 64, "epochs": 1},
  "log": {"every_steps": 5, "report": false, "tensorboard": false}
})";

class Recovery : public testing::Test {
 protected:
  void SetUp() override { write("small.json", small); }

  ProgramResult hearth(std::vector<std::string> words) {
    words.insert(words.begin(), test::hearth_program());
    return test::run_program(std::move(words), folder_.path());
  }
  /// The run of small.json, for so many epochs.
  ProgramResult train(const std::string& epochs, std::vector<std::string> more = {}) {
    more.insert(more.begin(), {"train", "small.json", "--set", "train.epochs=" + epochs});
    return hearth(std::move(more));
  }
  void write(const std::string& name, const std::string& text) {
    (void)folder_.write(name, {text.begin(), text.end()});
  }
  std::string path(const std::string& name) const { return folder_ / name; }
  std::string read(const std::string& name) const { return read_text(path(name)); }
  Json info(const std::string& run) const { return read_json(path(run + "/run.json")); }
  /// Whether the run holds the set that its run.json calls the best, as its best.
  bool holds_its_best(const std::string& run) const {
    const std::string set = checkpoint_name(info(run).at("metrics").at("best_step").as_integer());
    return file_exists(path(run + "/checkpoints/" + set)) &&
           fs::read_symlink(path(run + "/checkpoints/best")).string() == set;
  }

  test::TempDir folder_;
};

void expect_refused(const ProgramResult& result, int exit_code, const std::vector<std::string>& parts) {
  EXPECT_EQ(result.exit_code, exit_code) << result.err;
  for (const std::string& part : parts) EXPECT_PRED2(contains, result.last_error_line(), part);
}

TEST_F(Recovery, ResumingFromItsOwnFolderDeletesNothing) {
  ASSERT_EQ(train("1").exit_code, 0);
  const std::string weights = read("runs/small/checkpoints/latest/model.safetensors");
  fs::create_directory_symlink("runs", path("link"));
  for (const char* own : {"runs/small", "./runs/../runs/small/", "link/small"}) {
    const ProgramResult again = train("1", {"--resume", own});
    EXPECT_EQ(again.exit_code, 0) << again.err;
    EXPECT_EQ(read("runs/small/checkpoints/latest/model.safetensors"), weights);
    EXPECT_TRUE(holds_its_best("runs/small"));
    EXPECT_EQ(read_metrics(path("runs/small/metrics.jsonl")).front().at("step").as_integer(), 5);
  }
  const ProgramResult longer = train("2", {"--resume", "runs/small"});
  EXPECT_EQ(longer.exit_code, 0) << longer.err;
  EXPECT_PRED2(contains, longer.err, "resumed at step 22");
  EXPECT_EQ(read_metrics(path("runs/small/metrics.jsonl")).front().at("step").as_integer(), 5);
}

TEST_F(Recovery, ANewFolderHoldsTheWeightsOfTheRunThatGoesOnInIt) {
  ASSERT_EQ(train("1").exit_code, 0);
  const ProgramResult moved = train("1", {"--out", "new", "--resume", "runs/small"});
  ASSERT_EQ(moved.exit_code, 0) << moved.err;
  EXPECT_EQ(read("new/checkpoints/latest/model.safetensors"), read("runs/small/checkpoints/latest/model.safetensors"));
  EXPECT_EQ(info("new").at("status").as_string(), "finished");
  EXPECT_TRUE(holds_its_best("new"));
  EXPECT_EQ(hearth({"eval", "new"}).exit_code, 0);
  EXPECT_EQ(hearth({"eval", "runs/small"}).exit_code, 0);
  expect_refused(train("1", {"--out", "new", "--resume", "absent"}), 3, {"absent", "no complete checkpoint"});
  EXPECT_EQ(hearth({"eval", "new"}).exit_code, 0);
  const ProgramResult longer = train("2", {"--out", "new"});
  EXPECT_EQ(longer.exit_code, 0) << longer.err;
  EXPECT_PRED2(contains, longer.err, "resumed at step 22");
}

TEST_F(Recovery, ANewFolderHasItsOwnBest) {
  const std::string split = "data.valid_fraction=0.2";
  ASSERT_EQ(train("1", {"--set", split}).exit_code, 0);
  {
    // An evaluation that none to come can surpass.
    Session session(load_config(path("small.json"), {split}));
    ASSERT_NE(restore_newest(session, path("runs/small")).from, "");
    session.position.best_accuracy = 2;
    save_session(session, path("runs/small/checkpoints"));
  }
  const ProgramResult moved = train("2", {"--out", "new", "--resume", "runs/small", "--set", split});
  ASSERT_EQ(moved.exit_code, 0) << moved.err;
  EXPECT_TRUE(holds_its_best("new"));
  EXPECT_LE(info("new").at("metrics").at("best_accuracy").as_number(), 1);
}

TEST_F(Recovery, SetsThatCannotBeReadAreNotDeleted) {
  ASSERT_EQ(train("1", {"--set", "checkpoint.every_steps=11"}).exit_code, 0);
  for (const char* set : {"step-00000011", "step-00000022"})
    write(std::string("runs/small/checkpoints/") + set + "/model.safetensors", "cut short");
  const ProgramResult result = train("2");
  expect_refused(result, 3, {"step-00000011", "step-00000022", "model.safetensors", "--resume never"});
  EXPECT_EQ(read("runs/small/checkpoints/step-00000011/model.safetensors"), "cut short");
  expect_refused(train("2", {"--resume", "runs/small", "--out", "new"}), 3, {"step-00000022"});
  EXPECT_EQ(train("2", {"--resume", "never"}).exit_code, 0);
}

TEST_F(Recovery, AFolderTakesOneRunAtATime) {
  ASSERT_EQ(train("1").exit_code, 0);
  const RunFolder another(path("runs/small"));
  for (const char* resume : {"auto", "never", "runs/small"})
    expect_refused(
        train("2", {"--resume", resume}), 3,
        {"runs/small", join_text("another process (pid ", getpid(), " on "), "trains into this folder", "--out"});
  EXPECT_EQ(info("runs/small").at("status").as_string(), "finished");
  EXPECT_EQ(hearth({"eval", "runs/small"}).exit_code, 0) << "reading takes no lock";
}

TEST_F(Recovery, LostMetricsStopNothing) {
  ASSERT_EQ(train("1").exit_code, 0);
  const std::string metrics = path("runs/small/metrics.jsonl");
  fs::resize_file(metrics, fs::file_size(metrics) - 10);
  const ProgramResult shorter = train("2");
  EXPECT_EQ(shorter.exit_code, 0) << shorter.err;
  EXPECT_PRED2(contains, shorter.err, "warning: runs/small/metrics.jsonl lost");
  EXPECT_EQ(read_metrics(metrics).front().at("step").as_integer(), 5);
  fs::remove(metrics);
  const ProgramResult missing = train("3");
  EXPECT_EQ(missing.exit_code, 0) << missing.err;
  EXPECT_PRED2(contains, missing.err, "warning: runs/small/metrics.jsonl lost");
  EXPECT_EQ(read_metrics(metrics).back().at("step").as_integer(), 66);
}

TEST_F(Recovery, ADamagedLineOfMetricsStopsNothing) {
  ASSERT_EQ(train("1", {"--set", "log.report=true"}).exit_code, 0);
  const std::string metrics = path("runs/small/metrics.jsonl");
  std::string text = read("runs/small/metrics.jsonl");
  text[text.find("{\"step\":10,")] = 'x';
  write("runs/small/metrics.jsonl", text);
  const ProgramResult longer = train("2", {"--set", "log.report=true"});
  EXPECT_EQ(longer.exit_code, 0) << longer.err;
  EXPECT_PRED2(contains, longer.err, "warning: runs/small/metrics.jsonl lost ");
  EXPECT_PRED2(contains, longer.err, "line 2 is no JSON");
  const std::vector<Json> records = read_metrics(metrics);
  EXPECT_EQ(records[0].at("step").as_integer(), 5);
  EXPECT_EQ(records[1].at("step").as_integer(), 25);
}

TEST_F(Recovery, EqualRunsWriteEqualTensorFiles) {
  for (const char* run : {"one", "two"})
    ASSERT_EQ(train("1", {"--out", run, "--set", "log.every_steps=1"}).exit_code, 0);
  for (const char* file : {"model.safetensors", "state.safetensors"})
    EXPECT_EQ(read(std::string("one/checkpoints/latest/") + file), read(std::string("two/checkpoints/latest/") + file))
        << file;
}

TEST_F(Recovery, ASetThatIsNotFiniteIsNeverTheLatest) {
  Session session(load_config(path("small.json"), {}));
  const std::string sets = path("run/checkpoints");
  save_session(session, sets);
  session.position.step = 1;
  Tensor weights = session.parameters->values();
  const float kept = weights.data<float>()[3];
  weights.data<float>()[3] = std::numeric_limits<float>::quiet_NaN();
  const std::string message = test::error_message<DivergedError>([&] { save_session(session, sets); });
  for (const char* part : {"layers.0.weight", "at step 1", "1 NaN", "no checkpoint"})
    EXPECT_PRED2(contains, message, part);
  EXPECT_EQ(fs::read_symlink(sets + "/latest"), checkpoint_name(0));
  EXPECT_FALSE(file_exists(sets + "/" + checkpoint_name(1)));
  weights.data<float>()[3] = kept;
  save_session(session, sets);
  EXPECT_EQ(fs::read_symlink(sets + "/latest"), checkpoint_name(1));
}

TEST_F(Recovery, WithoutAValidSplitTheBestIsTheLast) {
  const ProgramResult result = train("3", {"--set", "log.report=true"});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  EXPECT_PRED2(contains, result.err, "best      the last checkpoint, as there is no valid split; data.valid_fraction");
  EXPECT_PRED2(contains, result.err, "final test loss ");
  EXPECT_EQ(result.err.find("(best)"), std::string::npos);
  const Json metrics = info("runs/small").at("metrics");
  EXPECT_EQ(metrics.at("best_step").as_integer(), 66);
  EXPECT_EQ(metrics.at("best_by").as_string(), "last checkpoint");
  EXPECT_EQ(metrics.at("split").as_string(), "test");
  EXPECT_EQ(metrics.find("best_accuracy"), nullptr) << "none was chosen";
  EXPECT_TRUE(holds_its_best("runs/small"));
  EXPECT_PRED2(contains, read("runs/small/report.html"),
               "There is no valid split: the best checkpoint is the last one");
  const ProgramResult judged = train("3", {"--out", "judged", "--set", "data.valid_fraction=0.2"});
  ASSERT_EQ(judged.exit_code, 0) << judged.err;
  EXPECT_PRED2(contains, judged.err, "best      by valid accuracy\n");
  EXPECT_PRED2(contains, judged.err, "test accuracy ");
  EXPECT_EQ(info("judged").at("metrics").at("best_by").as_string(), "valid accuracy");
  EXPECT_TRUE(info("judged").at("metrics").find("test_accuracy"));
}

TEST_F(Recovery, MetricsAreOnDiskBeforeACheckpointCountsOnThem) {
  std::vector<std::string> words{"hearth", "train", path("small.json"), "--out", path("run")}, names;
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  synced = &names;
  const int code = run_cli(static_cast<int>(argv.size()), argv.data());
  synced = nullptr;
  ASSERT_EQ(code, 0);
  const auto log = std::find(names.begin(), names.end(), "metrics.jsonl");
  const auto set = std::find(names.begin(), names.end(), "model.safetensors");
  EXPECT_NE(set, names.end());
  EXPECT_LT(log - names.begin(), set - names.begin());
}

TEST_F(Recovery, WhatIsNoRunsIsLeftAlone) {
  write("exp/config.json", small);
  expect_refused(hearth({"train", "exp/config.json", "--out", "exp"}), 2, {"--out exp", "exp/config.json"});
  write("exp/run.json", small);
  expect_refused(hearth({"train", "exp/run.json", "--out", "./exp"}), 2, {"exp/run.json"});
  expect_refused(train("1", {"--out", "exp"}), 3, {"exp/config.json", "another --out"});
  EXPECT_EQ(read("exp/config.json"), small);
  EXPECT_EQ(read("exp/run.json"), small);
  expect_refused(train("1", {"--out", ""}), 2, {"--out"});
  for (const std::string name : {"", ".", "..", "a/b", "-x", "a\\nb", "a\\u0000b", "a\\u001b[31m", "a\\u009b31m"})
    expect_refused(train("1", {"--set", "name=\"" + name + "\""}), 2, {"/name"});
  expect_refused(train("1", {"--set", "name=" + std::string(201, 'x')}), 2, {"/name", "201 bytes"});
  // A configuration beside a run is no part of it; that of a run goes on with it.
  write("exp2/my.json", small);
  ASSERT_EQ(hearth({"train", "exp2/my.json", "--out", "exp2"}).exit_code, 0);
  ASSERT_EQ(hearth({"train", "exp2/config.json", "--out", "exp2", "--set", "train.epochs=2"}).exit_code, 0);
  ASSERT_EQ(hearth({"train", "exp2/my.json", "--out", "exp2", "--resume", "never"}).exit_code, 0);
  EXPECT_EQ(read("exp2/my.json"), small);
}

TEST_F(Recovery, CheckpointsThatContradictThemselvesAreRefused) {
  ASSERT_EQ(train("1").exit_code, 0);
  const fs::path good = fs::path(path("runs/small/checkpoints")) / "step-00000022";
  // A set whose checksums are right, of these files of the good one.
  const auto craft = [&](std::int64_t step, const std::vector<std::string>& names, const Json& metrics_bytes) {
    fs::remove_all(path("crafted"));
    CheckpointWriter writer(path("crafted/checkpoints"), step);
    for (const std::string& name : names) fs::copy(good / name, writer.file(name));
    writer.note("metrics_bytes", metrics_bytes);
    writer.commit();
    return train("2", {"--out", "new", "--resume", "crafted"});
  };
  const std::vector<std::string> others{"model.safetensors", "config.json", "data.json"};
  std::vector<std::string> all = others;
  all.push_back("state.safetensors");
  expect_refused(craft(22, {}, 0), 3, {"manifest.json", "does not list model.safetensors"});
  expect_refused(craft(22, others, 0), 3, {"manifest.json", "does not list state.safetensors"});
  expect_refused(craft(23, all, 0), 3, {"state after step 22", "checkpoint of step 23"});
  for (const Json& bytes : {Json("abc"), Json(-1), Json(2.5)})
    expect_refused(craft(22, all, bytes), 3, {"metrics_bytes", "no number of bytes"});
  EXPECT_EQ(craft(22, all, 0).exit_code, 0);
}

TEST_F(Recovery, RatesThatAreNoNumbersAreRefusedBeforeAFolderIsMade) {
  for (const char* set :
       {R"(schedule={"type": "cosine", "final_factor": 1e308})",
        R"(schedule={"type": "step", "milestones": [1], "unit": "steps", "gamma": 1e300})", "optimizer.lr=1e300"})
    expect_refused(train("1", {"--set", set}), 2, {"/schedule", "learning rate"});
  EXPECT_FALSE(fs::exists(path("runs")));
}

TEST_F(Recovery, LinksThatAKilledProcessLeftOutAreFixed) {
  ASSERT_EQ(train("1").exit_code, 0);
  fs::remove(path("runs/small/checkpoints/best"));
  fs::remove(path("runs/small/checkpoints/latest"));
  EXPECT_EQ(hearth({"eval", "runs/small"}).exit_code, 0) << "the newest is there";
  ASSERT_EQ(train("1").exit_code, 0);
  EXPECT_TRUE(holds_its_best("runs/small"));
  EXPECT_TRUE(file_exists(path("runs/small/checkpoints/latest/manifest.json")));
}

TEST_F(Recovery, ALostLinkToTheBestIsFoundAgainOrTold) {
  // The first epoch is the best: afterwards no step is taken.
  ASSERT_EQ(train("3", {"--set", "data.valid_fraction=0.2", "--set", "checkpoint.keep=5", "--set",
                        R"(schedule={"type": "step", "milestones": [1], "gamma": 1e-30})"})
                .exit_code,
            0);
  const auto step_of = [&](const std::string& path) {
    const ProgramResult result = hearth({"eval", path, "--json"});
    return result.exit_code == 0 ? parse_json(result.out, "eval").at("step").as_integer() : -1;
  };
  ASSERT_EQ(step_of("runs/small"), 17);
  fs::remove(path("runs/small/checkpoints/best"));
  EXPECT_EQ(step_of("runs/small"), 17);
  fs::remove_all(path("runs/small/checkpoints/step-00000017"));
  expect_refused(hearth({"eval", "runs/small"}), 3, {"its best checkpoint, that of step 17", "name another one of"});
  EXPECT_EQ(step_of("runs/small/checkpoints/latest"), 51);
}

// 17 steps an epoch with this split.
TEST_F(Recovery, ABestThatIsDamagedGivesItsPlaceUp) {
  const std::vector<std::string> often{"--set", "data.valid_fraction=0.2", "--set", "checkpoint.every_steps=11",
                                       "--set", "checkpoint.keep=2"};
  ASSERT_EQ(train("2", often).exit_code, 0);
  ASSERT_EQ(fs::read_symlink(path("runs/small/checkpoints/best")).string(), "step-00000034");
  ASSERT_FALSE(fs::exists(path("runs/small/checkpoints/step-00000017"))) << "the best before";
  write("runs/small/checkpoints/step-00000034/model.safetensors", "cut short");
  expect_refused(hearth({"eval", "runs/small"}), 3,
                 {"the best or the newest of the run", "model.safetensors", "runs/small/checkpoints"});
  const ProgramResult resumed = train("2", often);
  ASSERT_EQ(resumed.exit_code, 0) << resumed.err;
  EXPECT_PRED2(contains, resumed.err, "resumed at step 33");
  EXPECT_TRUE(holds_its_best("runs/small"));
  EXPECT_EQ(hearth({"eval", "runs/small"}).exit_code, 0);
}

TEST_F(Recovery, ASetThatWasEvaluatedTakesThePlaceOfADamagedBest) {
  const std::string split = "data.valid_fraction=0.2";
  ASSERT_EQ(train("2", {"--set", split}).exit_code, 0);
  ASSERT_EQ(fs::read_symlink(path("runs/small/checkpoints/best")).string(), "step-00000034");
  write("runs/small/checkpoints/step-00000034/model.safetensors", "cut short");
  {
    // The best evaluation so far was another, whose set is gone.
    Session session(load_config(path("small.json"), {split}));
    ASSERT_NE(restore_newest(session, path("runs/small")).from, "");
    ASSERT_EQ(session.position.step, 17);
    session.position.best_step = 11;
    session.position.best_accuracy = 2;
    save_session(session, path("runs/small/checkpoints"));
  }
  ASSERT_EQ(fs::read_symlink(path("runs/small/checkpoints/best")).string(), "step-00000034");
  const ProgramResult shorter = train("1", {"--set", split});
  ASSERT_EQ(shorter.exit_code, 0) << shorter.err;
  EXPECT_EQ(fs::read_symlink(path("runs/small/checkpoints/best")).string(), "step-00000017");
  EXPECT_EQ(hearth({"eval", "runs/small"}).exit_code, 0);
  const ProgramResult longer = train("2", {"--set", split});
  ASSERT_EQ(longer.exit_code, 0) << longer.err;
  EXPECT_TRUE(holds_its_best("runs/small"));
  EXPECT_LE(info("runs/small").at("metrics").at("best_accuracy").as_number(), 1);
}

TEST_F(Recovery, ARunThatCannotSaveAfterASignalHasFailed) {
  const std::string program = test::hearth_program();
  const pid_t child = fork();
  ASSERT_NE(child, -1);
  if (child == 0) {
    if (chdir(folder_.path().c_str()) != 0 || freopen("/dev/null", "w", stderr) == nullptr) _exit(126);
    signal(SIGHUP, SIG_DFL);  // where the tests were started to ignore it, as by nohup
    execl(program.c_str(), program.c_str(), "train", "small.json", "--set", "train.epochs=100000", "--set",
          "eval.every_epochs=100000", "--set", "checkpoint.every_epochs=100000", "--set", "log.report=true", nullptr);
    _exit(127);
  }
  const std::string metrics = path("runs/small/metrics.jsonl");
  while (!fs::exists(metrics) || fs::file_size(metrics) == 0) std::this_thread::sleep_for(std::chrono::milliseconds(2));
  fs::rename(path("runs/small/checkpoints"), path("runs/small/elsewhere"));
  write("runs/small/checkpoints", "no folder");
  kill(child, SIGHUP);
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 3);
  EXPECT_EQ(info("runs/small").at("status").as_string(), "failed");
  EXPECT_PRED2(contains, read("runs/small/report.html"), "status failed");
}

TEST_F(Recovery, ARepeatedCommandLeavesTheRecordOfAFinishedRun) {
  ASSERT_EQ(train("1").exit_code, 0);
  const std::string record = read("runs/small/run.json"), config = read("runs/small/config.json");
  const ProgramResult again = train("1", {"--set", "log.every_steps=7"});
  ASSERT_EQ(again.exit_code, 0) << again.err;
  EXPECT_PRED2(contains, again.err, "finished before");
  EXPECT_EQ(read("runs/small/run.json"), record);
  EXPECT_EQ(read("runs/small/config.json"), config);
  // A process that was killed before it wrote how the run ended left that to the next.
  std::string running = record;
  write("runs/small/run.json", running.replace(running.find("finished"), 8, "running"));
  ASSERT_EQ(train("1").exit_code, 0);
  EXPECT_EQ(info("runs/small").at("status").as_string(), "finished");
}

TEST_F(Recovery, LimitsOfWaitingMayDiffer) {
  ASSERT_EQ(train("1").exit_code, 0);
  const ProgramResult longer = train("2", {"--set", "dist.timeout=7", "--set", "dist.join_timeout=7", "--set",
                                           "data.stuck_seconds=7", "--set", "data.stuck_limit_seconds=70"});
  EXPECT_EQ(longer.exit_code, 0) << longer.err;
  EXPECT_PRED2(contains, longer.err, "resumed at step 22");
}

TEST_F(Recovery, APathWithoutACheckpointIsAFault) {
  const RunFolder empty(path("empty"));
  expect_refused(hearth({"eval", "empty"}), 3, {"empty", "no whole checkpoint"});
  fs::create_symlink("loop", path("loop"));
  expect_refused(hearth({"eval", "loop"}), 3, {"loop", "cannot be looked up"});
}

}  // namespace
}  // namespace hearth::train
