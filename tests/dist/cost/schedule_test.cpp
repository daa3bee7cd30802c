// SPDX-License-Identifier: Apache-2.0
#include "dist/cost/schedule.h"

#include <gtest/gtest.h>

namespace hearth::dist::schedule_test {
namespace {

/// A bucket of a plain sum.
BucketCost bucket(double ready, double transfer) { return {.ready = ready, .stages = {{0, transfer}}}; }

TEST(Schedule, SumsBeginWhenTheBucketIsFullAndTheLinkIsFree) {
  // Of a step of 10 s: from 4 to 7, from 7 (not 6) to 9, from 10 to 12.
  const Forecast step = forecast(10, {bucket(4, 3), bucket(6, 2), bucket(10, 2)});
  EXPECT_DOUBLE_EQ(step.seconds, 12);
  EXPECT_DOUBLE_EQ(step.exposed, 2);
  EXPECT_DOUBLE_EQ(step.communication, 7);
}

TEST(Schedule, WhatTheBackwardPassHidesCostsNothing) {
  EXPECT_DOUBLE_EQ(forecast(10, {bucket(1, 3), bucket(2, 4)}).seconds, 10);
  EXPECT_DOUBLE_EQ(forecast(10, {bucket(1, 3), bucket(2, 4)}).exposed, 0);
  EXPECT_DOUBLE_EQ(forecast(10, {}).seconds, 10);
}

TEST(Schedule, ComputationOfAStrategyPutsTheBackwardPassOff) {
  // Encodes from 2 to 3, sends to 8. The backward pass is over at 11, decoding at 13.
  const BucketCost coded{.ready = 2, .stages = {{1, 5}}, .end = 2};
  const Forecast step = forecast(10, {coded});
  EXPECT_DOUBLE_EQ(step.seconds, 13);
  EXPECT_DOUBLE_EQ(step.exposed, 0);
}

TEST(Schedule, AFurtherStageStartsWithTheNextBucketAndHoldsItUp) {
  // The first: encoded 2 to 3, under way to 8. The second is there at 5 (one second late), encoded to 6, and its sum
  // would go from 8 to 13. Then the rank waits for the first until 8, computes to 9, and that goes from 13 to 18. The
  // backward pass has 6 s left at 9: over at 15, where 6 + 5 s were waits and strategies.
  const BucketCost first{.ready = 2, .stages = {{1, 5}, {1, 5}}}, second{.ready = 4, .stages = {{1, 5}}};
  const Forecast step = forecast(10, {first, second});
  EXPECT_DOUBLE_EQ(step.communication, 15);
  EXPECT_DOUBLE_EQ(step.exposed, 2 + 3);
  EXPECT_DOUBLE_EQ(step.seconds, 18);
}

}  // namespace
}  // namespace hearth::dist::schedule_test
