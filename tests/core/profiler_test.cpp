// SPDX-License-Identifier: Apache-2.0
#include "core/profiler.h"

#include <gtest/gtest.h>

#include <regex>

#include "core/io/json_text.h"
#include "tests/support/grouping_locale.h"

namespace hearth {
namespace {

TEST(Profiler, TracesHaveTimesWithAllDigitsInEveryLocale) {
  const test::GroupingLocale elsewhere;
  profiler::start();
  {
    const profiler::Scope outer("outer");
    const profiler::Scope inner("inner");
    profiler::add_flops(3);
  }
  profiler::stop();
  const std::string trace = profiler::chrome_trace();
  const Json events = parse_json(trace, "trace");
  ASSERT_EQ(events.items().size(), 2u) << trace;
  EXPECT_EQ(events.at(0).at("name").as_string(), "inner");
  EXPECT_EQ(profiler::summary().at("inner").flops, 3);
  const std::regex times(R"("ts":[0-9]+\.[0-9]{3},"dur":[0-9]+\.[0-9]{3}\})");
  EXPECT_EQ(std::distance(std::sregex_iterator(trace.begin(), trace.end(), times), std::sregex_iterator()), 2) << trace;
}

}  // namespace
}  // namespace hearth
