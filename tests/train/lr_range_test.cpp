// SPDX-License-Identifier: Apache-2.0
// The learning-rate range test: its rates, its end, and the rate that it suggests.
#include "train/lr_range.h"

#include <gtest/gtest.h>

#include <cmath>
#include <fstream>

#include "core/error.h"
#include "tests/support/error_message.h"
#include "tests/support/places.h"
#include "tests/support/run_program.h"
#include "tests/train/hook_run.h"

namespace hearth::train::lr_range_test {
namespace {

using test::contains;

class LrRanges : public testing::Test {
 protected:
  LrRange range_of(const LrRangeOptions& options, const std::vector<std::string>& overrides = {}) const {
    const std::string config = folder_ / "run.json";
    std::ofstream(config) << test::run_config;
    std::vector<std::string> all{"train.batch_size=64"};
    all.insert(all.end(), overrides.begin(), overrides.end());
    Session session(load_config(config, all));
    return test_lr_range(session, options);
  }
  test::TempDir folder_;
};

TEST_F(LrRanges, RisesExponentiallyAndSmoothsTheLoss) {
  // A schedule changes nothing; a rule of scaling is taken out again.
  const LrRange range = range_of({.min_lr = 1e-5, .max_lr = 1e-2, .steps = 40},
                                 {R"(schedule={"type": "cosine", "warmup_steps": 30})",
                                  R"(train.lr_scaling={"rule": "linear", "reference_batch": 16})"});
  ASSERT_EQ(range.trials.size(), 40u);
  EXPECT_FALSE(range.diverged);
  EXPECT_DOUBLE_EQ(range.trials[0].lr, 1e-5);
  EXPECT_NEAR(range.trials[39].lr, 1e-2, 1e-12);
  double mean = 0;
  for (std::size_t i = 0; i < 40; ++i) {
    if (i > 0) {
      EXPECT_NEAR(range.trials[i].lr / range.trials[i - 1].lr, std::pow(1e3, 1.0 / 39), 1e-9);
    }
    mean = 0.98 * mean + 0.02 * range.trials[i].loss;
    EXPECT_NEAR(range.trials[i].smoothed, mean / (1 - std::pow(0.98, i + 1)), 1e-12) << i;
  }
  const LrRange plain = range_of({.min_lr = 4e-5, .max_lr = 4e-2, .steps = 40});
  for (std::size_t i = 0; i < 40; ++i)
    EXPECT_NEAR(plain.trials[i].loss, range.trials[i].loss, 1e-9) << "the same rates, 4 x 64 / 64";
}

TEST_F(LrRanges, EndsWhereTheLossDiverges) {
  const LrRange range = range_of({.min_lr = 1e-4, .max_lr = 1e6, .steps = 100});
  EXPECT_TRUE(range.diverged);
  EXPECT_LT(range.trials.size(), 100u);
  ASSERT_TRUE(range.steepest.has_value());
  const double suggested = range.trials[static_cast<std::size_t>(*range.steepest)].lr;
  EXPECT_GT(suggested, 1e-3);
  EXPECT_LT(suggested, 10);
}

TEST_F(LrRanges, SuggestsWhereTheLossFallsFastest) {
  std::vector<LrTrial> trials;
  for (int i = 0; i < 60; ++i) {
    // Steepest at trial 35; the falls of the first trials and of the last do not count.
    const double fall = 1 / (1 + std::exp(i - 35.0)) + (i < 5 ? 10 - 2 * i : 0) - (i == 59 ? 100 : 0);
    trials.push_back({1e-5 * std::pow(1.2, i), fall, fall});
  }
  EXPECT_EQ(steepest_descent(trials), 35);
  EXPECT_EQ(steepest_descent({trials.begin(), trials.begin() + 13}), std::nullopt) << "too few";
  for (LrTrial& trial : trials) trial.smoothed = trial.lr;
  EXPECT_EQ(steepest_descent(trials), std::nullopt) << "it only rises";
}

TEST_F(LrRanges, OptionsAreChecked) {
  const auto refused = [&](const LrRangeOptions& options) {
    return test::error_message<ConfigError>([&] { (void)range_of(options); });
  };
  EXPECT_PRED2(contains, refused({.min_lr = 0}), "above 0");
  EXPECT_PRED2(contains, refused({.min_lr = -1}), "above 0");
  EXPECT_PRED2(contains, refused({.min_lr = 1, .max_lr = 1}), "larger");
  EXPECT_PRED2(contains, refused({.max_lr = std::numeric_limits<double>::infinity()}), "larger");
  EXPECT_PRED2(contains, refused({.steps = 19}), "at least 20");
}

TEST_F(LrRanges, AreACommandOfTheProgram) {
  const std::string config = folder_ / "run.json";
  std::ofstream(config) << test::run_config;
  const auto tune = [&](std::vector<std::string> words) {
    words.insert(words.begin(), {test::hearth_program(), "tune"});
    return test::run_program(std::move(words), folder_.path());
  };
  const test::ProgramResult tuned =
      tune({"lr", "run.json", "--steps", "60", "--min", "1e-3", "--max", "10", "--set", "batch_size=64", "--json"});
  ASSERT_EQ(tuned.exit_code, 0) << tuned.err;
  const Json result = parse_json(tuned.out, "tune");
  const double suggested = result.at("suggested_lr").as_number();
  EXPECT_GT(suggested, 1e-3);
  EXPECT_LT(suggested, 10);
  EXPECT_GE(result.at("tried").size(), 20u);
  EXPECT_PRED2(contains, tuned.err, "steepest");
  EXPECT_FALSE(file_exists(folder_ / "runs")) << "it writes no run";
  EXPECT_PRED2(contains, tune({"lr", "run.json"}).out, "optimizer.lr");
  const auto expect_refused = [&](std::vector<std::string> words, const std::string& part) {
    const test::ProgramResult refused = tune(std::move(words));
    EXPECT_EQ(refused.exit_code, 2) << refused.err;
    EXPECT_PRED2(contains, refused.last_error_line(), part);
  };
  expect_refused({"lr"}, "CONFIG.json");
  expect_refused({"lr", "run.json", "--most", "20"}, "--most");
  expect_refused({"batch", "run.json", "--min", "1"}, "--min");
  expect_refused({"lr", "run.json", "--steps", "3"}, "at least 20");
  expect_refused({"lr", "run.json", "--min", "2", "--max", "1"}, "larger");
}

}  // namespace
}  // namespace hearth::train::lr_range_test
