// SPDX-License-Identifier: Apache-2.0
// A run is a function of its config: killed and resumed, with other worker counts, and in deterministic mode with other
// thread counts, it ends with the same bits. These tests run the built program, as a user does.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <random>
#include <thread>

#include "core/io/file.h"
#include "core/io/json_text.h"
#include "tests/support/places.h"
#include "tests/support/temp_dir.h"

namespace hearth::exactness_test {
namespace {

using Words = std::vector<std::string>;

pid_t start(const Words& words, const Words& environment = {}) {
  const pid_t child = fork();
  if (child != 0) return child;
  for (const std::string& variable : environment) putenv(const_cast<char*>(variable.c_str()));
  std::vector<char*> argv;
  for (const std::string& word : words) argv.push_back(const_cast<char*>(word.c_str()));
  argv.push_back(nullptr);
  if (freopen("/dev/null", "w", stderr) == nullptr) _exit(126);
  execv(argv[0], argv.data());
  _exit(127);
}

int wait_for(pid_t child) {
  int status = 0;
  waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status);
}

// Returns once the run in this folder has logged something.
void wait_for_metrics(const std::string& folder) {
  const std::string metrics = folder + "/metrics.jsonl";
  while (!std::filesystem::exists(metrics) || std::filesystem::file_size(metrics) == 0)
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
}

// Returns once the run in this folder has something to go on from.
void wait_for_checkpoint(const std::string& folder) {
  while (!std::filesystem::exists(folder + "/checkpoints/latest/manifest.json"))
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
}

Words train_words(const std::string& out, const Words& more = {}) {
  Words words{test::hearth_program(),
              "train",
              test::source_dir() + "/examples/configs/digits_resnet.json",
              "--out",
              out,
              "--set",
              "train.epochs=3",
              "--set",
              "model.width=8",
              "--set",
              "checkpoint.every_steps=7",
              "--set",
              "log.every_steps=5",
              "--set",
              "train.ema=0.99",
              "--set",
              "log.report=false"};
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

// Everything of metrics.jsonl that does not depend on the clock.
std::string metrics_of(const std::string& folder) {
  std::string all, text = read_text(folder + "/metrics.jsonl");
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = text.find('\n', begin);
    const Json record = parse_json(std::string_view(text).substr(begin, end - begin), "metrics");
    for (const JsonMember& member : record.members())
      if (member.key != "throughput" && !member.key.starts_with("data_") && !member.key.starts_with("queue_") &&
          !member.key.starts_with("process_") && member.key != "phase_seconds" && !member.key.starts_with("machine_") &&
          !member.key.starts_with("device_") && member.key != "mfu" && member.key != "bandwidth")
        all += member.key + "=" + to_text(member.value) + " ";
    all += "\n";
    begin = end + 1;
  }
  return all;
}

std::string hashes_of(const std::string& folder) {
  const Json metrics = read_json(folder + "/run.json").at("metrics");
  return metrics.at("weights_sha256").as_string() + " " + metrics.at("state_sha256").as_string();
}

// A sanitizer looks at what is done, not at how often it goes well.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
const std::vector<const char*> worker_counts{"0", "2"};
#else
const std::vector<const char*> worker_counts{"0", "1", "2", "4"};
#endif

class Exactness : public testing::Test {
 protected:
  hearth::test::TempDir folder_;
  std::string path(const std::string& name) const { return (folder_.path() / name).string(); }
};

/// Models of every family, by what they change in the configuration above.
struct KilledFamily {
  const char* name;
  Words changes;
};
void PrintTo(const KilledFamily& family, std::ostream* out) { *out << family.name; }

class KilledRuns : public Exactness, public testing::WithParamInterface<KilledFamily> {};

TEST_P(KilledRuns, EndAsIfNothingHadHappened) {
  std::ofstream text(path("text.txt"));
  for (int i = 0; i < 400; ++i) text << "the hen of house " << i * i << " lays eggs.\n";
  text.close();
  Words changes;
  for (const std::string& change : GetParam().changes) changes.insert(changes.end(), {"--set", change});
  if (GetParam().name == std::string("gpt"))
    changes.insert(changes.end(),
                   {"--set", R"(data={"type": "text", "length": 16, "valid_fraction": 0.1, "train": [")" +
                                 path("text.txt") + R"("], "tokenizer": {"type": "characters"}})"});
  ASSERT_EQ(wait_for(start(train_words(path("whole"), changes))), 0);
  std::mt19937 random(5);
  int kills = 0;
  for (int attempt = 0; attempt < 4; ++attempt) {
    const pid_t child = start(train_words(path("killed"), changes));
    // The first kill waits for progress, not for the clock: how long the run takes depends on the machine.
    if (attempt == 0) wait_for_checkpoint(path("killed"));
    std::this_thread::sleep_for(std::chrono::milliseconds(attempt == 0 ? 0 : random() % 300));
    kill(child, SIGKILL);
    kills += wait_for(child) == 1000 + SIGKILL;
  }
  ASSERT_EQ(wait_for(start(train_words(path("killed"), changes))), 0);
  EXPECT_GT(kills, 0) << "the run was never hit";
  EXPECT_EQ(hashes_of(path("killed")), hashes_of(path("whole")));
  EXPECT_EQ(metrics_of(path("killed")), metrics_of(path("whole")));
}

INSTANTIATE_TEST_SUITE_P(
    Families, KilledRuns,
    testing::Values(
        KilledFamily{"resnet", {}},
        KilledFamily{"gpt", {R"(model={"type": "gpt", "layers": 1, "heads": 2, "width": 16, "dropout": 0.1})"}},
        KilledFamily{"swin", {R"(model={"type": "swin", "depths": [2, 1], "heads": [1, 2], "width": 8, "patch": 2,
                        "window": 2, "drop_path": 0.2})"}}),
    [](const auto& tried) { return tried.param.name; });

TEST_F(Exactness, ASignalLeavesACheckpointToGoOnFrom) {
  ASSERT_EQ(wait_for(start(train_words(path("whole")))), 0);
  const pid_t child = start(train_words(path("stopped"), {"--set", "checkpoint.every_steps=100000"}));
  wait_for_metrics(path("stopped"));
  // On the way a checkpoint is asked for, which stops nothing.
  kill(child, SIGUSR1);
  wait_for_checkpoint(path("stopped"));
  kill(child, SIGTERM);
  ASSERT_EQ(wait_for(child), 128 + SIGTERM);
  EXPECT_EQ(read_json(path("stopped") + "/run.json").at("status").as_string(), "stopped");
  EXPECT_TRUE(std::filesystem::exists(path("stopped") + "/checkpoints/latest/manifest.json"));
  ASSERT_EQ(wait_for(start(train_words(path("stopped")))), 0);
  EXPECT_EQ(read_json(path("stopped") + "/run.json").at("status").as_string(), "finished");
  EXPECT_EQ(hashes_of(path("stopped")), hashes_of(path("whole")));
  EXPECT_EQ(metrics_of(path("stopped")), metrics_of(path("whole")));
}

TEST_F(Exactness, WorkersChangeNothing) {
  std::string first;
  for (const char* workers : worker_counts) {
    const std::string out = path(std::string("workers") + workers);
    ASSERT_EQ(wait_for(start(train_words(out, {"--set", std::string("data.workers=") + workers}))), 0);
    if (first.empty()) first = hashes_of(out);
    EXPECT_EQ(hashes_of(out), first) << workers << " workers";
  }
}

TEST_F(Exactness, ThreadsChangeNothingInDeterministicMode) {
  std::string first;
  for (const char* threads : {"1", "2", "3"}) {
    const std::string out = path(std::string("threads") + threads);
    const std::string pool = std::string("HEARTH_THREADS=") + threads;
    ASSERT_EQ(wait_for(start(train_words(out, {"--set", "train.deterministic=true"}), {pool})), 0);
    if (first.empty()) first = hashes_of(out);
    EXPECT_EQ(hashes_of(out), first) << threads << " threads";
  }
}

// Mixed precision with a scale that moves, in the midst of accumulation, over an epoch's end too: 44 batches by 3. The
// high growth makes updates be skipped.
Words scaled_words(const char* level, const Words& more = {}) {
  Words words{"--set", std::string("precision.level=") + level,
              "--set", "precision.dtype=f16",
              "--set", "precision.growth_steps=1",
              "--set", "train.accumulate=3",
              "--set", "train.epochs=3"};
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

TEST_F(Exactness, ScaledRunsThatWereKilledEndAsIfNothingHadHappened) {
  for (const char* level : {"O1", "O2"}) {
    const std::string whole = path(std::string("whole") + level), out = path(std::string("killed") + level);
    ASSERT_EQ(wait_for(start(train_words(whole, scaled_words(level)))), 0);
    const std::string metrics = read_text(whole + "/metrics.jsonl");
    const std::size_t last = metrics.rfind("\"skipped_steps\":");
    ASSERT_NE(last, std::string::npos);
    EXPECT_NE(metrics[last + 16], '0') << "a run without an overflow shows nothing";
    int kills = 0;
    for (int attempt = 0; attempt < 2; ++attempt) {
      const pid_t child = start(train_words(out, scaled_words(level)));
      // As in KilledRuns: without a checkpoint the runs that follow would start afresh.
      if (attempt == 0) wait_for_checkpoint(out);
      std::this_thread::sleep_for(std::chrono::milliseconds(attempt * 250));
      kill(child, SIGKILL);
      kills += wait_for(child) == 1000 + SIGKILL;
    }
    ASSERT_EQ(wait_for(start(train_words(out, scaled_words(level)))), 0);
    EXPECT_GT(kills, 0) << "the run was never hit";
    EXPECT_EQ(hashes_of(out), hashes_of(whole)) << level;
    EXPECT_EQ(metrics_of(out), metrics_of(whole)) << level;
  }
}

TEST_F(Exactness, WorkersAndThreadsChangeNothingInScaledRuns) {
  std::string first;
  for (const auto& [workers, threads] : {std::pair{"0", "1"}, {"2", "2"}}) {
    const std::string out = path(std::string("threads") + threads);
    const Words more{"--set", std::string("data.workers=") + workers, "--set", "train.deterministic=true"};
    ASSERT_EQ(wait_for(start(train_words(out, scaled_words("O2", more)), {std::string("HEARTH_THREADS=") + threads})),
              0);
    if (first.empty()) first = hashes_of(out);
    EXPECT_EQ(hashes_of(out), first) << threads << " threads";
  }
}

TEST_F(Exactness, AnotherConfigDoesNotContinueTheRun) {
  ASSERT_EQ(wait_for(start(train_words(path("run"), {"--set", "train.epochs=1"}))), 0);
  EXPECT_EQ(wait_for(start(train_words(path("run"), {"--set", "optimizer.lr=0.05"}))), 2);
}

}  // namespace
}  // namespace hearth::exactness_test
