// SPDX-License-Identifier: Apache-2.0
// The built program under signals at any moment: what they ask for is done, nothing else happens, and the bits of the
// run are those of one that was left alone.
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
#include "tests/support/error_message.h"
#include "tests/support/places.h"
#include "tests/support/run_program.h"

namespace hearth::signal_storm_test {
namespace {

namespace fs = std::filesystem;
using test::contains;

// Of two layers of width 64 in f32: products that oneDNN computes on a stack in the heap.
const char* const gpt = R"({
  "name": "gpt", "device": "cpu",
  "model": {"type": "gpt", "layers": 2, "heads": 4, "width": 64},
  "data": {"type": "text", "length": 32, "valid_fraction": 0.1, "train": ["text.txt"],
           "tokenizer": {"type": "characters"}, "workers": 1},
  "optimizer": {"type": "adamw", "lr": 0.001},
  "train": {"batch_size": 8, "steps": 10},
  "eval": {"every_epochs": 100000}, "checkpoint": {"every_steps": 100000},
  "log": {"every_steps": 1, "report": false, "tensorboard": false}
})";

class SignalRuns : public testing::Test {
 protected:
  void SetUp() override {
    std::ofstream(folder_ / "gpt.json") << gpt;
    std::ofstream text(folder_ / "text.txt");
    for (int i = 0; i < 400; ++i) text << "the hen of house " << i * i << " lays eggs.\n";
  }

  /// The program in a process of its own. One of its streams is a pipe whose reader has gone, or none; messages are not
  /// wanted otherwise.
  pid_t start(std::vector<std::string> words, int closed_pipe = -1) const {
    words.insert(words.begin(), test::hearth_program());
    std::vector<char*> argv;
    for (std::string& word : words) argv.push_back(word.data());
    argv.push_back(nullptr);
    const pid_t child = fork();
    if (child != 0) return child;
    if (chdir(folder_.path().c_str()) != 0 || freopen("/dev/null", "w", stderr) == nullptr) _exit(126);
    int ends[2];
    if (closed_pipe >= 0 && (pipe(ends) != 0 || close(ends[0]) != 0 || dup2(ends[1], closed_pipe) < 0)) _exit(126);
    execv(argv[0], argv.data());
    _exit(127);
  }
  static std::string end_of(pid_t child) {
    int status = 0;
    waitpid(child, &status, 0);
    return WIFEXITED(status) ? "code " + std::to_string(WEXITSTATUS(status))
                             : "signal " + std::to_string(WTERMSIG(status));
  }
  Json info(const std::string& out) const { return read_json((folder_ / out / "run.json").string()); }
  std::string hashes(const std::string& out) const {
    const Json metrics = info(out).at("metrics");
    return metrics.at("weights_sha256").as_string() + " " + metrics.at("state_sha256").as_string();
  }

  /// As many runs, each of which gets SIGUSR1 every 2 ms from when it has a folder until it has ended.
  void storm(int runs) {
    ASSERT_EQ(end_of(start({"train", "gpt.json", "--out", "calm"})), "code 0");
    for (int i = 0; i < runs; ++i) {
      fs::remove_all(folder_ / "run");
      const pid_t child = start({"train", "gpt.json", "--out", "run"});
      int status = 0;
      while (waitpid(child, &status, WNOHANG) == 0) {
        if (fs::exists(folder_ / "run")) kill(child, SIGUSR1);
        std::this_thread::sleep_for(std::chrono::milliseconds(2));
      }
      ASSERT_TRUE(WIFEXITED(status)) << "run " << i << " was killed by signal " << WTERMSIG(status);
      ASSERT_EQ(WEXITSTATUS(status), 0) << "run " << i;
      ASSERT_EQ(hashes("run"), hashes("calm")) << "run " << i;
    }
  }

  test::TempDir folder_;
};

TEST_F(SignalRuns, AStormChangesNothing) { storm(3); }

using SlowSignalRuns = SignalRuns;
TEST_F(SlowSignalRuns, AHundredStormsChangeNothing) { storm(100); }

TEST_F(SignalRuns, MessagesThatNobodyReadsEndNoTraining) {
  EXPECT_EQ(end_of(start({"train", "gpt.json", "--out", "run"}, STDERR_FILENO)), "code 0");
  EXPECT_EQ(info("run").at("status").as_string(), "finished");
}

TEST_F(SignalRuns, ResultsThatNobodyReadsEndTheProgram) {
  EXPECT_EQ(end_of(start({"schema"}, STDOUT_FILENO)), "signal " + std::to_string(SIGPIPE));
}

TEST_F(SignalRuns, AFileThatGrowsTooLargeIsAnError) {
  // In blocks of 512 bytes. The weights alone have 0.4 MB.
  const test::ProgramResult result = test::run_program(
      {"/bin/sh", "-c", "ulimit -f 200; exec \"" + test::hearth_program() + "\" train gpt.json"}, folder_.path());
  EXPECT_EQ(result.exit_code, 3);
  for (const char* part : {"hearth: error: file: ", "model.safetensors", "ulimit -f"})
    EXPECT_PRED2(contains, result.last_error_line(), part);
  EXPECT_EQ(info("runs/gpt").at("status").as_string(), "failed");
}

}  // namespace
}  // namespace hearth::signal_storm_test
