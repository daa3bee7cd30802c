// SPDX-License-Identifier: Apache-2.0
// The memory of ranks that are processes, by dist.zero: as the plan has it, and within a limit.
#include <gtest/gtest.h>

#include <fstream>
#include <string>
#include <vector>

#include "core/io/json_text.h"
#include "tests/support/error_message.h"
#include "tests/support/places.h"
#include "tests/support/run_program.h"
#include "tests/support/temp_dir.h"

namespace hearth::train::zero_memory_test {
namespace {

using test::contains;

class ZeroMemoryOfProcesses : public testing::Test {
 protected:
  ZeroMemoryOfProcesses() {
    std::ofstream text(folder_ / "text.txt");
    for (int i = 0; i < 400; ++i) text << "line " << i * i % 97 << " of " << (i * 7) % 89 << " words\n";
    std::ofstream(config_) << R"({"seed": 5, "device": "cpu",
        "model": {"type": "gpt", "layers": 6, "heads": 4, "width": 128, "dropout": 0.0},
        "data": {"type": "text", "train": ["text.txt"], "test": ["text.txt"], "valid_fraction": 0.1, "length": 16,
                 "workers": 0, "tokenizer": {"type": "characters"}},
        "optimizer": {"type": "adamw", "lr": 0.001}, "train": {"batch_size": 8, "steps": 3, "clip_norm": 1.0},
        "eval": {"batch_size": 8}, "dist": {"bucket_mb": 0.25},
        "log": {"every_steps": 1, "tensorboard": false, "report": false}})";
  }

  test::ProgramResult run(std::vector<std::string> words, int megabytes = 0) const {
    words.insert(words.begin(), test::hearth_program());
    if (megabytes > 0)
      words.insert(words.begin(), {"/usr/bin/env", "HEARTH_MEMORY_LIMIT_MB=" + std::to_string(megabytes)});
    return test::run_program(words, folder_.path());
  }

  test::ProgramResult train(int ranks, int zero, const std::string& out, int megabytes = 0,
                            const std::vector<std::string>& more = {}) const {
    std::vector<std::string> words{
        "launch", "-n",    std::to_string(ranks), "--",    "train",
        config_,  "--out", folder_ / out,         "--set", "dist.zero=" + std::to_string(zero)};
    words.insert(words.end(), more.begin(), more.end());
    return run(words, megabytes);
  }

  test::TempDir folder_;
  const std::string config_ = folder_ / "run.json";
};

TEST_F(ZeroMemoryOfProcesses, IsWithinFivePercentOfThePlan) {
  double before = 1e18;
  for (const int zero : {0, 1, 2, 3}) {
    const test::ProgramResult plan =
        run({"plan", config_, "--json", "--ranks", "4", "--set", "dist.zero=" + std::to_string(zero)});
    ASSERT_EQ(plan.exit_code, 0) << plan.err;
    const Json plan_json = parse_json(plan.out, "plan");
    const double planned = plan_json.at("ranks").items()[0].at("peak_bytes").as_number();
    const std::string out = "run" + std::to_string(zero);
    const test::ProgramResult trained = train(4, zero, out);
    ASSERT_EQ(trained.exit_code, 0) << trained.err;
    const Json record = read_json(folder_ / (out + "/run.json"));
    const double real = record.at("profile").at("bytes").at("peak in use").as_number();
    EXPECT_NEAR(planned, real, 0.05 * real) << "zero " << zero;
    EXPECT_LT(real, before) << "zero " << zero;
    before = real;
  }
}

TEST_F(ZeroMemoryOfProcesses, AModelThatDoesNotFitInOneRankTrainsOnFour) {
  constexpr int megabytes = 10;
  const test::ProgramResult alone = train(1, 0, "alone", megabytes), whole = train(4, 0, "whole", megabytes);
  for (const test::ProgramResult& failed : {alone, whole}) {
    EXPECT_NE(failed.exit_code, 0);
    EXPECT_PRED2(contains, failed.err, "10485760 are available; make the model smaller");
  }
  // With all that a run shows of its model.
  const test::ProgramResult trained = train(4, 3, "divided", megabytes, {"--set", "log.report=true"});
  EXPECT_EQ(trained.exit_code, 0) << trained.err;
  EXPECT_EQ(trained.err.find("warning"), std::string::npos) << trained.err;
  // What it has written is the whole model: another run goes on from it alone.
  const test::ProgramResult longer = train(1, 0, "divided", 0, {"--set", "train.steps=4"});
  EXPECT_EQ(longer.exit_code, 0) << longer.err;
}

}  // namespace
}  // namespace hearth::train::zero_memory_test
