// SPDX-License-Identifier: Apache-2.0
#include "ops/dispatch/plan_timing.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <set>
#include <vector>

namespace hearth::plan_timing_test {
namespace {

constexpr double never = std::numeric_limits<double>::infinity();

TEST(CudaPlanTiming, TheSmallestMedianWins) {
  const std::vector<double> taken{5, 3, 4, 7};
  const Fastest found = fastest_of(taken.size(), [&](std::size_t way, std::size_t) { return taken[way]; });
  EXPECT_EQ(found.index, 1u);
  EXPECT_EQ(found.microseconds, 3);
}

TEST(CudaPlanTiming, OneRunThatWasDisturbedDoesNotDecide) {
  // Way 1 is the fastest, but for one run in three, which takes very long; way 0 once takes no time at all.
  int runs = 0;
  const Fastest found = fastest_of(2, [&](std::size_t way, std::size_t round) {
    if (way == 0) return round == 2 ? 0.0 : 4.0;
    return ++runs % 3 == 0 ? 1000.0 : 3.0;
  });
  EXPECT_EQ(found.index, 1u);
}

TEST(CudaPlanTiming, TheFirstRunDoesNotCount) {
  std::vector<int> runs(2);
  const Fastest found = fastest_of(2, [&](std::size_t way, std::size_t) {
    return runs[way]++ == 0 ? (way == 1 ? 1e9 : 0.0) : (way == 1 ? 2.0 : 3.0);
  });
  EXPECT_EQ(found.index, 1u);
  EXPECT_EQ(found.microseconds, 2);
}

TEST(CudaPlanTiming, OfEqualsTheFirstWins) {
  EXPECT_EQ(fastest_of(5, [](std::size_t, std::size_t) { return 1.0; }).index, 0u);
  // Way 1 was ahead for a while.
  std::vector<int> runs(2);
  EXPECT_EQ(fastest_of(2, [&](std::size_t way, std::size_t) { return ++runs[way] <= 6 && way == 1 ? 1.0 : 2.0; }).index,
            0u);
}

TEST(CudaPlanTiming, TheBestThreeRunOnAndEachRoundIsAnother) {
  std::vector<int> runs(6);
  std::set<std::size_t> rounds;
  const Fastest found = fastest_of(6, [&](std::size_t way, std::size_t round) {
    ++runs[way];
    EXPECT_TRUE(rounds.insert(round).second);
    return 10.0 - static_cast<double>(way);
  });
  EXPECT_EQ(found.index, 5u);
  EXPECT_EQ(runs, (std::vector<int>{6, 6, 6, 16, 16, 16}));
}

TEST(CudaPlanTiming, WhatDoesNotRunIsLeftOut) {
  std::vector<int> runs(3);
  const Fastest found = fastest_of(3, [&](std::size_t way, std::size_t) {
    ++runs[way];
    return way == 0 ? never : way == 1 ? std::nan("") : 9.0;
  });
  EXPECT_EQ(found.index, 2u);
  EXPECT_EQ(runs[0], 1);
  EXPECT_EQ(runs[1], 1);
  EXPECT_EQ(fastest_of(2, [](std::size_t, std::size_t) { return never; }).microseconds, never);
  EXPECT_EQ(fastest_of(0, [](std::size_t, std::size_t) { return 1.0; }).microseconds, never);
}

}  // namespace
}  // namespace hearth::plan_timing_test
