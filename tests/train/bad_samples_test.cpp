// SPDX-License-Identifier: Apache-2.0
// The built program on record files that are damaged, or become so: what ends a run and with which words, what it may
// pass over, and that this too is the same after a kill.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <thread>

#include "core/io/file.h"
#include "core/io/json_text.h"
#include "core/random.h"
#include "data/source/record_file.h"
#include "tests/support/error_message.h"
#include "tests/support/places.h"
#include "tests/support/run_program.h"

namespace hearth::bad_samples_test {
namespace {

namespace fs = std::filesystem;
using test::contains;
using test::ProgramResult;
using Words = std::vector<std::string>;

// 11 steps an epoch.
const char* const config = R"({
  "name": "run", "device": "cpu", "seed": 3,
  "model": {"type": "mlp", "hidden": [16]},
  "data": {"type": "records", "path": "packed", "workers": 2},
  "optimizer": {"type": "sgd", "lr": 0.1, "momentum": 0.9},
  "train": {"batch_size": 128, "epochs": 3, "deterministic": true},
  "checkpoint": {"every_steps": 2}, "eval": {"every_epochs": 2},
  "log": {"every_steps": 1, "tensorboard": false}
})";

class DamagedRecords : public testing::Test {
 protected:
  void SetUp() override {
    std::ofstream(folder_ / "run.json") << config;
    std::ofstream(folder_ / "digits.json")
        << R"({"model": {"type": "mlp"}, "data": {"type": "digits"}, "optimizer": {"type": "sgd", "lr": 0.1},
               "train": {"steps": 1}})";
    const ProgramResult packed = hearth({"data", "pack", "digits.json", "--out", "packed", "--records", "200"});
    ASSERT_EQ(packed.exit_code, 0) << packed.err;
  }
  ProgramResult hearth(Words words) const {
    words.insert(words.begin(), test::hearth_program());
    return test::run_program(std::move(words), folder_.path(), 300);
  }
  ProgramResult train(Words more = {}) const {
    more.insert(more.begin(), {"train", "run.json"});
    return hearth(std::move(more));
  }
  /// The program in the background, saying nothing.
  pid_t start(Words words) const {
    words.insert(words.begin(), test::hearth_program());
    std::vector<char*> argv;
    for (std::string& word : words) argv.push_back(word.data());
    argv.push_back(nullptr);
    const pid_t child = fork();
    if (child != 0) return child;
    if (chdir(folder_.path().c_str()) != 0 || freopen("err", "w", stderr) == nullptr) _exit(126);
    alarm(300);
    execv(argv[0], argv.data());
    _exit(127);
  }
  static std::string end_of(pid_t child) {
    int status = 0;
    waitpid(child, &status, 0);
    return WIFEXITED(status) ? "code " + std::to_string(WEXITSTATUS(status))
                             : "signal " + std::to_string(WTERMSIG(status));
  }
  std::string shard(int number) const { return folder_ / ("packed/train-0000" + std::to_string(number) + ".ffr"); }
  /// Flips a bit in the middle of a record; returns how messages name it.
  std::string damage(int file, std::int64_t record) const {
    const data::RecordFile opened(shard(file));
    const auto at = static_cast<std::streamoff>(opened.offset(record) + opened.bytes(record) / 2);
    std::fstream content(shard(file), std::ios::binary | std::ios::in | std::ios::out);
    content.seekg(at);
    const int byte = content.get() ^ 4;
    content.seekp(at);
    content.put(static_cast<char>(byte));
    return "train-0000" + std::to_string(file) + ".ffr: record " + std::to_string(record) + " at offset " +
           std::to_string(opened.offset(record));
  }
  Json info(const std::string& run) const { return read_json(folder_ / (run + "/run.json")); }
  std::string hashes(const std::string& run) const {
    const Json metrics = info(run).at("metrics");
    return metrics.at("weights_sha256").as_string() + " " + metrics.at("state_sha256").as_string();
  }

  test::TempDir folder_;
};

void expect_data_error(const ProgramResult& result, const std::vector<std::string>& parts) {
  EXPECT_EQ(result.exit_code, 3) << result.err;
  EXPECT_PRED2(contains, result.last_error_line(), "hearth: error: ");
  for (const std::string& part : parts) EXPECT_PRED2(contains, result.last_error_line(), part);
}

TEST_F(DamagedRecords, EveryKindOfDamageEndsTrainingAndVerifyWithCode3) {
  const std::string path = shard(2), whole = read_text(path);
  const auto expect_both = [&](const std::vector<std::string>& parts) {
    expect_data_error(train(), parts);
    const ProgramResult verified = hearth({"data", "verify", "packed"});
    expect_data_error(verified, {});
    for (const std::string& part : parts) EXPECT_PRED2(contains, verified.out + verified.err, part);
    std::ofstream(path, std::ios::binary) << whole;
  };
  const std::string place = damage(2, 17);
  expect_both({place});
  fs::resize_file(path, whole.size() - 100);
  expect_both({"train-00002.ffr"});
  fs::resize_file(path, 20);
  expect_both({"train-00002.ffr", "offset"});
  fs::resize_file(path, whole.size() + 100);
  expect_both({"train-00002.ffr"});
  fs::remove(path);
  expect_both({"train-00002.ffr"});
  EXPECT_EQ(hearth({"data", "verify", "packed"}).exit_code, 0);
}

TEST_F(DamagedRecords, AFileThatShrinksUnderARunEndsItWithCode3) {
  const std::uint64_t begin = data::RecordFile(shard(0)).offset(1);
  const pid_t child = start({"train", "run.json", "--set", "train.epochs=100000", "--set", "log.report=false"});
  while (!fs::exists(folder_ / "runs/run/metrics.jsonl") || fs::file_size(folder_ / "runs/run/metrics.jsonl") == 0)
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  fs::resize_file(shard(0), begin + 3);
  EXPECT_EQ(end_of(child), "code 3");
  const std::string said = read_text(folder_ / "err");
  EXPECT_PRED2(contains, said, "hearth: error: data: ");
  EXPECT_PRED2(contains, said, "train-00000.ffr: record ");
  EXPECT_PRED2(contains, said, "ends at offset");
  EXPECT_EQ(info("runs/run").at("status").as_string(), "failed");
}

TEST_F(DamagedRecords, ARunPassesOverThemAndSaysSo) {
  const std::string first = damage(0, 5), second = damage(3, 100), third = damage(6, 1);
  expect_data_error(train(), {".ffr: record"});
  // The same run goes on, as the policy is no part of what it computes.
  const ProgramResult done = train({"--set", "data.bad_samples.policy=\"skip\""});
  ASSERT_EQ(done.exit_code, 0) << done.err;
  EXPECT_PRED2(contains, done.err,
               "warning: sample 5 of the train split is bad, and another stands in for it: packed/");
  const Json bad = info("runs/run").at("bad_samples").at("train");
  EXPECT_EQ(bad.at("count").as_integer(), 3);
  EXPECT_EQ(bad.at("limit").as_integer(), 15) << "1 % of 1,437, rounded up";
  const std::vector<std::string> faults{first, second, third};
  for (std::size_t i = 0; i < 3; ++i) EXPECT_PRED2(contains, bad.at("first").at(i).at("fault").as_string(), faults[i]);
  EXPECT_EQ(bad.at("first").at(std::size_t{1}).at("sample").as_integer(), 700);
  EXPECT_PRED2(contains, read_text(folder_ / "runs/run/report.html"), "Bad samples");
  EXPECT_PRED2(contains, read_text(folder_ / "runs/run/report.html"), second);
  EXPECT_PRED2(contains, read_text(folder_ / "runs/run/metrics.jsonl"), "\"bad_samples\":3");
}

TEST_F(DamagedRecords, OverTheBudgetTheRunEndsAndNamesTheFirst) {
  damage(0, 5), damage(3, 100), damage(6, 1);
  const Words with_budget{"--set", "data.bad_samples={\"policy\": \"skip\", \"budget\": 2}"};
  expect_data_error(train(with_budget), {"3 samples of the train split are bad, and 2 of 1437 may be",
                                         "sample 5 (packed", "data.bad_samples.budget"});
  EXPECT_EQ(info("runs/run").at("bad_samples").at("train").at("count").as_integer(), 3);
  // With more it goes on.
  EXPECT_EQ(train({"--set", "data.bad_samples={\"policy\": \"skip\", \"budget\": 3}"}).exit_code, 0);
}

TEST_F(DamagedRecords, KilledRunsPassOverTheSameSamples) {
  damage(0, 5), damage(0, 6), damage(3, 100), damage(6, 1);
  const Words skip{"--set", "data.bad_samples.policy=\"skip\"", "--set", "log.report=false"};
  const auto with = [&](Words words) {
    words.insert(words.end(), skip.begin(), skip.end());
    return words;
  };
  ASSERT_EQ(train(with({"--out", "calm", "--set", "data.workers=0"})).exit_code, 0);
  Random random(4, 0);
  for (int kills = 0; kills < 6; ++kills) {
    const pid_t child = start(with({"train", "run.json", "--out", "killed"}));
    const auto latest = [&] {
      std::error_code absent;
      return fs::read_symlink(folder_ / "killed/checkpoints/latest", absent).string();
    };
    const std::string before = latest();
    siginfo_t ended{};
    while (latest() == before && ended.si_pid == 0) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
      ASSERT_EQ(waitid(P_PID, static_cast<id_t>(child), &ended, WEXITED | WNOHANG | WNOWAIT), 0);
    }
    std::this_thread::sleep_for(std::chrono::microseconds(random.below(20'000)));
    kill(child, SIGKILL);
    waitpid(child, nullptr, 0);
  }
  ASSERT_EQ(train(with({"--out", "killed"})).exit_code, 0);
  EXPECT_EQ(hashes("killed"), hashes("calm"));
  EXPECT_EQ(info("killed").at("bad_samples"), info("calm").at("bad_samples"));
  EXPECT_EQ(info("killed").at("bad_samples").at("train").at("count").as_integer(), 4);
}

}  // namespace
}  // namespace hearth::bad_samples_test
