// SPDX-License-Identifier: Apache-2.0
// Memory that runs out, at any request and under any limit, ends the program with exit code 4 and a message: never by a
// signal, and never with a result that is wrong. A sample; scripts/allocation_failures tries every request.
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <set>

#include "core/io/file.h"
#include "core/io/json_text.h"
#include "tests/support/error_message.h"
#include "tests/support/places.h"
#include "tests/support/run_program.h"

namespace hearth::allocation_failure_test {
namespace {

constexpr int tried = 30;

class AllocationFailure : public testing::Test {
 protected:
  void SetUp() override {
    if (test::failing_requests().empty()) GTEST_SKIP() << "the sanitizer has an allocator of its own";
    std::ofstream(folder_ / "run.json") << R"({
      "device": "cpu", "model": {"type": "resnet", "blocks": [1], "stem": "small", "width": 8},
      "data": {"type": "synthetic", "train_size": 16, "test_size": 8, "height": 8, "width": 8, "workers": 1},
      "optimizer": {"type": "sgd", "lr": 0.05}, "train": {"batch_size": 8, "steps": 2, "ema": 0.9}})";
  }

  /// A run of two steps with such a variable in the environment.
  test::ProgramResult train(const std::string& variable) {
    return test::run_program({"/usr/bin/env", "HEARTH_THREADS=1", "LD_PRELOAD=" + test::failing_requests(), variable,
                              test::hearth_program(), "train", "run.json", "--out", "run", "--resume", "never"},
                             folder_.path());
  }
  std::string weights() const {
    return read_json(folder_ / "run/run.json").at("metrics").at("weights_sha256").as_string();
  }
  void expect_clean_end(const test::ProgramResult& result, const std::string& whole, const std::string& what) const {
    // A request may be for something that can be done without.
    if (result.exit_code == 0) {
      EXPECT_EQ(weights(), whole) << what;
      return;
    }
    EXPECT_EQ(result.exit_code, 4) << what << "\n" << result.err;
    EXPECT_EQ(result.last_error_line().find("hearth: error: memory: "), 0u) << what << "\n" << result.err;
  }

  test::TempDir folder_;
};

TEST_F(AllocationFailure, EndsWithCodeFourWhicheverRequestFails) {
  const std::string list = folder_ / "calls";
  ASSERT_EQ(train("HEARTH_TEST_CALLS=" + list).exit_code, 0);
  const std::string whole = weights();
  // The first request of each chain of calls.
  std::ifstream in(list);
  std::vector<std::string> numbers;
  std::set<std::string> seen;
  for (std::string number, calls; in >> number >> calls;)
    if (seen.insert(calls).second) numbers.push_back(number);
  ASSERT_GT(numbers.size(), 1000u);
  for (int i = 0; i < tried; ++i) {
    const std::string& number = numbers[numbers.size() * static_cast<std::size_t>(i) / tried];
    const std::string variable = "HEARTH_TEST_FAIL=" + number + (i % 2 == 0 ? "" : "+");
    expect_clean_end(train(variable), whole, variable);
  }
}

TEST_F(AllocationFailure, EndsWithCodeFourUnderALimitOfTheAddressSpace) {
  const auto train_within = [&](int megabytes) {
    return test::run_program({"/bin/sh", "-c",
                              "ulimit -v " + std::to_string(megabytes * 1024) + "; export HEARTH_THREADS=2; exec " +
                                  test::hearth_program() + " train run.json --out run --resume never"},
                             folder_.path());
  };
  ASSERT_EQ(train_within(100000).exit_code, 0);
  const std::string whole = weights();
  // What the plan knows not to fit is refused before the first step, with the batch that would.
  const test::ProgramResult refused = test::run_program(
      {"/bin/sh", "-c",
       "ulimit -v 3000000; exec " + test::hearth_program() +
           " train run.json --out refused --set data.height=512 --set data.width=512 --set train.batch_size=16 "
           "--set model.width=64"},
      folder_.path());
  EXPECT_EQ(refused.exit_code, 4);
  EXPECT_PRED2(test::contains, refused.err, "batch");
  EXPECT_FALSE(file_exists(folder_ / "refused/metrics.jsonl"));
  // Below it the program does not load; above it the run has what it needs.
  int least = 32, enough = 1024;
  while (train_within(least).last_error_line().find("hearth: ") != 0) least += 16;
  for (int i = 0; i < 12; ++i) {
    const int megabytes = least + (enough - least) * i / 12;
    expect_clean_end(train_within(megabytes), whole, std::to_string(megabytes) + " MB");
  }
}

}  // namespace
}  // namespace hearth::allocation_failure_test
