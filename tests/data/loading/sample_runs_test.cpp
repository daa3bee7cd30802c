// SPDX-License-Identifier: Apache-2.0
#include "data/loading/sample_runs.h"

#include <gtest/gtest.h>

#include <set>
#include <vector>

#include "core/random.h"

namespace hearth::data::sample_runs_test {
namespace {

std::set<std::int64_t> members(const SampleRuns& runs) {
  std::set<std::int64_t> all;
  for (const auto& [begin, end] : runs.runs())
    for (std::int64_t sample = begin; sample < end; ++sample) all.insert(sample);
  return all;
}

TEST(SampleRunsTest, NeighboursAreOneRun) {
  SampleRuns runs{3, 5};
  EXPECT_EQ(runs.runs().size(), 2u);
  EXPECT_EQ(runs.end_of(3), 4);
  EXPECT_EQ(runs.end_of(4), 4) << "is not there";
  runs.add(4, 5);
  EXPECT_EQ(runs, (SampleRuns{3, 4, 5}));
  EXPECT_EQ(runs.runs().size(), 1u);
  EXPECT_EQ(runs.end_of(3), 6);
  EXPECT_EQ(runs.size(), 3);
  runs.add(10, 10);
  EXPECT_FALSE(runs.holds(10));
  runs.clear();
  EXPECT_TRUE(runs.empty());
  EXPECT_EQ(runs.size(), 0);
}

TEST(SampleRunsTest, HasWhatASetOfNumbersHas) {
  Random random(3, 0);
  const auto below = [&](std::uint64_t bound) { return static_cast<std::int64_t>(random.below(bound)); };
  for (int trial = 0; trial < 200; ++trial) {
    SampleRuns runs;
    std::set<std::int64_t> wanted;
    for (int step = 0; step < 30; ++step) {
      const std::int64_t begin = below(60), end = begin + below(8), most = below(2) == 0 ? 100 : below(5);
      most == 100 ? runs.add(begin, end) : runs.add(begin, end, most);
      for (std::int64_t sample = begin, left = most; sample < end && left > 0; ++sample)
        left -= wanted.insert(sample).second ? 1 : 0;
      ASSERT_EQ(members(runs), wanted);
      ASSERT_EQ(runs.size(), static_cast<std::int64_t>(wanted.size()));
      for (std::int64_t sample = 0; sample < 70; ++sample) ASSERT_EQ(runs.holds(sample), wanted.count(sample) == 1);
      std::int64_t last = -2;
      for (const auto& [first, behind] : runs.runs()) {
        ASSERT_GT(first, last) << "a gap between runs";
        last = behind;
      }
    }
  }
}

}  // namespace
}  // namespace hearth::data::sample_runs_test
