// SPDX-License-Identifier: Apache-2.0
// How many threads the program computes with, and how they wait.
#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "core/io/json_text.h"
#include "tests/support/places.h"
#include "tests/train/cli_program.h"

namespace hearth::train::cli_threads_test {
namespace {

// Threads that want to run on each core of the machine.
struct Busy {
  Busy() {
    for (unsigned i = 0; i < std::max(1U, std::thread::hardware_concurrency()); ++i)
      threads.emplace_back([this] {
        while (!stop) {
        }
      });
  }
  ~Busy() {
    stop = true;
    for (std::thread& thread : threads) thread.join();
  }
  std::atomic<bool> stop{false};
  std::vector<std::thread> threads;
};

TEST_F(Cli, threads_wait_briefly_where_others_use_the_cores) {
  write("run.json", good_config);
  const Busy busy;
  const auto train = [&](const std::string& variable) {
    return test::run_program({"/usr/bin/env", "-u", "OMP_WAIT_POLICY", "HEARTH_THREADS=2", variable,
                              test::hearth_program(), "train", "run.json", "--dry-run"},
                             path(""));
  };
  const ProgramResult shared = train("A=b"), chosen = train("GOMP_SPINCOUNT=5000"), whole = hearth({"help"});
  EXPECT_EQ(shared.exit_code, 0) << shared.err;
  EXPECT_PRED2(contains, shared.err, "the 2 threads wait briefly before they sleep (GOMP_SPINCOUNT=1000)");
  EXPECT_PRED2(contains, shared.err, "\nrun       small") << "it goes on";
  EXPECT_EQ(chosen.exit_code, 0) << chosen.err;
  EXPECT_FALSE(contains(chosen.err, "wait briefly")) << "the user's choice stays";
  EXPECT_FALSE(contains(whole.err, "wait briefly")) << "a command that computes nothing";
}

TEST_F(Cli, a_run_computes_with_its_threads_and_says_so) {
  write("run.json", good_config);
  const auto train = [&](const std::string& threads) {
    return test::run_program({"/usr/bin/env", "HEARTH_THREADS=2", test::hearth_program(), "train", "run.json", "--set",
                              "train.threads=" + threads, "--out", "of_" + threads},
                             path(""));
  };
  for (const auto& [threads, computing] : {std::pair("1", 1), std::pair("3", 2), std::pair("null", 2)}) {
    const ProgramResult result = train(threads);
    ASSERT_EQ(result.exit_code, 0) << result.err;
    EXPECT_PRED2(contains, result.err, join_text("device    cpu, ", computing, " thread"));
    const Json info = read_json(path(join_text("of_", threads, "/run.json")));
    EXPECT_EQ(info.at("machine").at("threads").as_integer(), computing);
  }
  EXPECT_EQ(train("0").exit_code, 2);
}

}  // namespace
}  // namespace hearth::train::cli_threads_test
