// SPDX-License-Identifier: Apache-2.0
#include "data/loading/quarantine.h"

#include <gtest/gtest.h>

#include "core/error.h"
#include "core/io/state.h"
#include "tests/support/error_message.h"
#include "tests/support/temp_dir.h"

namespace hearth::data::quarantine_test {
namespace {

using test::contains;
using test::error_message;
using Samples = SampleRuns;

TEST(QuarantineTest, TheNextSampleStandsIn) {
  Quarantine bad("train", "somewhere", 10, 10);
  Samples passed;
  EXPECT_EQ(bad.stand_in(8, passed), 8);
  for (const std::int64_t sample : {8, 9, 0}) bad.find(sample, "broken");
  EXPECT_EQ(bad.stand_in(8, passed), 1) << "around the end";
  EXPECT_EQ(bad.stand_in(7, passed), 7);
  EXPECT_EQ(passed, (Samples{0, 8, 9}));
  EXPECT_EQ(bad.count(), 0) << "what no batch has passed over is not counted";
  bad.deliver(passed);
  EXPECT_EQ(bad.count(), 3);
  EXPECT_EQ(bad.delivered()[1], (Quarantine::Entry{8, "broken"}));
  EXPECT_EQ(bad.take_new().size(), 3u);
  EXPECT_TRUE(bad.take_new().empty());
  for (std::int64_t sample = 1; sample < 8; ++sample) bad.find(sample, "broken");
  EXPECT_TRUE(contains(error_message<DataError>([&] { bad.stand_in(3, passed); }),
                       "somewhere: none of the 10 samples of the train split can be read"));
  EXPECT_THROW(bad.find(10, ""), IndexError);
}

TEST(QuarantineTest, LongRunsAreOneStep) {
  constexpr std::int64_t size = 100'000;
  Quarantine bad("train", "somewhere", size, size);
  for (std::int64_t sample = 10'000; sample < 90'000; ++sample) bad.find(sample, "");
  // Sample by sample these would be 3,200,000,000 steps.
  for (std::int64_t sample = 10'000; sample < 90'000; ++sample) {
    Samples passed;
    ASSERT_EQ(bad.stand_in(sample, passed), 90'000);
    ASSERT_EQ(passed.size(), 90'000 - sample);
    if (sample % 1000 == 0) bad.deliver(passed);
  }
  EXPECT_EQ(bad.count(), 80'000);
}

TEST(QuarantineTest, OverTheBudgetTheFirstAreNamed) {
  Quarantine bad("train", "somewhere", 100, 6);
  for (std::int64_t sample = 20; sample < 40; ++sample) bad.find(sample, join_text("a.png is broken in ", sample));
  bad.deliver(Samples{20, 21, 22, 23, 24, 25});
  bad.deliver(Samples{24});
  const std::string message = error_message<DataError>([&] { bad.deliver(Samples{30}); });
  EXPECT_TRUE(contains(message, "7 samples of the train split are bad, and 6 of 100 may be"));
  EXPECT_TRUE(contains(message, "sample 20 (a.png is broken in 20); sample 21"));
  EXPECT_TRUE(contains(message, "; and 2 more"));
  Samples some{20, 22};
  EXPECT_TRUE(contains(error_message<DataError>([&] { bad.stand_in(20, some); }), "; and 2 more")) << "one too many";
  // A split of which nothing can be read is not read to its end.
  Samples passed;
  EXPECT_TRUE(contains(error_message<DataError>([&] { bad.stand_in(20, passed); }), "more than the 6 samples"));
}

TEST(QuarantineTest, BudgetsAreSharesOrNumbers) {
  EXPECT_EQ(limit_of({.budget = 0.01}, 1000), 10);
  EXPECT_EQ(limit_of({.budget = 0.01}, 1001), 11);
  EXPECT_EQ(limit_of({.budget = 0.0}, 1000), 0);
  EXPECT_EQ(limit_of({.budget = 3.0}, 1000), 3);
  EXPECT_EQ(limit_of({.budget = 3e9}, 1000), 1000);
  EXPECT_EQ(limit_of({.budget = std::nullopt}, 1000), 1000);
}

TEST(QuarantineTest, WhatBatchesPassedOverIsState) {
  const test::TempDir folder;
  const std::string path = folder / "state.safetensors";
  Quarantine bad("train", "somewhere", 21, 21);
  State state;
  bad.register_state(state, "quarantine");
  const std::string none = state.hash();
  for (const std::int64_t sample : {3, 17, 20}) bad.find(sample, "broken");
  EXPECT_EQ(state.hash(), none) << "nothing was handed out";
  bad.deliver(Samples{3, 20});
  EXPECT_NE(state.hash(), none);
  state.save(path);
  Quarantine resumed("train", "somewhere", 21, 21);
  State other;
  resumed.register_state(other, "quarantine");
  resumed.find(5, "was found before the state was loaded");
  other.load(path);
  resumed.after_load(bad.delivered());
  EXPECT_EQ(resumed.delivered(), bad.delivered());
  EXPECT_EQ(other.hash(), state.hash());
  EXPECT_TRUE(resumed.take_new().empty());
  EXPECT_TRUE(resumed.holds(3) && resumed.holds(20) && !resumed.holds(17) && !resumed.holds(5));
  resumed.clear();
  EXPECT_EQ(other.hash(), none);
  EXPECT_FALSE(resumed.holds(3));
}

TEST(QuarantineTest, ProcessesTellEachOther) {
  Quarantine one("train", "somewhere", 21, 2), two("train", "somewhere", 21, 2);
  one.find(3, "broken");
  one.deliver(Samples{3});
  two.find(4, "torn");
  two.deliver(Samples{4});
  two.deliver(one.take_new());
  EXPECT_EQ(two.delivered(), (std::vector<Quarantine::Entry>{{3, "broken"}, {4, "torn"}}));
  EXPECT_TRUE(two.holds(3));
  EXPECT_THROW(two.deliver(std::vector<Quarantine::Entry>{{5, "lost"}}), DataError);
}

}  // namespace
}  // namespace hearth::data::quarantine_test
