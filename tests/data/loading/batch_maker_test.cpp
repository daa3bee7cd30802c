// SPDX-License-Identifier: Apache-2.0
// What is worked out once an epoch: made once while it is kept, the earliest dropped.
#include "data/loading/batch_maker.h"

#include <gtest/gtest.h>

namespace hearth::data::batch_maker_test {
namespace {

TEST(ByEpoch, KeepsAsManyEpochsAsIsSaid) {
  std::vector<std::int64_t> made;
  ByEpoch<std::int64_t> squares;
  const auto of = [&](std::int64_t epoch) {
    return *squares.of(epoch, [&] {
      made.push_back(epoch);
      return epoch * epoch;
    });
  };
  for (const std::int64_t epoch : {0, 1, 0, 1, 2, 1, 2}) EXPECT_EQ(of(epoch), epoch * epoch);
  EXPECT_EQ(made, (std::vector<std::int64_t>{0, 1, 2})) << "two are kept";
  EXPECT_EQ(of(0), 0);
  EXPECT_EQ(made.size(), 4U) << "an earlier one, as after a seek";
  EXPECT_EQ(of(1), 1);
  EXPECT_EQ(made.size(), 4U) << "the latest made room";
  squares.keep(5);
  made.clear();
  for (int round = 0; round < 3; ++round)
    for (std::int64_t epoch = 10; epoch < 15; ++epoch) EXPECT_EQ(of(epoch), epoch * epoch);
  EXPECT_EQ(made, (std::vector<std::int64_t>{10, 11, 12, 13, 14}));
}

}  // namespace
}  // namespace hearth::data::batch_maker_test
