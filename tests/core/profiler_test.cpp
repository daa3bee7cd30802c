// SPDX-License-Identifier: Apache-2.0
#include "core/profiler.h"

#include <gtest/gtest.h>

#include <regex>
#include <thread>

#include "core/io/json_text.h"
#include "core/origin.h"
#include "core/profiler_spans.h"
#include "tests/support/grouping_locale.h"

namespace hearth::profiler_test {
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

TEST(Profiler, SpansCountWithoutThoseInside) {
  profiler::start();
  {
    const OriginScope origin({"product", nullptr, true});
    const profiler::Scope op("product");
    profiler::add_bytes(8);
    const profiler::Scope implementation("product:fast");
    profiler::add_flops(2);
  }
  { const profiler::Scope other("other"); }
  std::thread([] { const profiler::Scope elsewhere("elsewhere"); }).join();
  profiler::stop();
  profiler::add_bytes(1);
  const std::vector<profiler::Span> spans = profiler::spans();
  ASSERT_EQ(spans.size(), 4u);
  const profiler::Span &inner = spans[0], &outer = spans[1];
  EXPECT_STREQ(inner.name, "product:fast");
  EXPECT_STREQ(inner.op, "product");
  EXPECT_TRUE(inner.backward);
  EXPECT_EQ(inner.flops, 2);
  EXPECT_EQ(inner.bytes, 0);
  EXPECT_EQ(inner.own_ns, inner.end_ns - inner.begin_ns);
  EXPECT_STREQ(outer.op, "product");
  EXPECT_TRUE(outer.backward);
  EXPECT_EQ(outer.flops, 0);
  EXPECT_EQ(outer.bytes, 8);
  EXPECT_EQ(outer.own_ns, outer.end_ns - outer.begin_ns - inner.own_ns);
  EXPECT_FALSE(spans[2].backward);
  EXPECT_EQ(spans[2].thread, profiler::this_thread());
  EXPECT_NE(spans[3].thread, profiler::this_thread());
}

}  // namespace
}  // namespace hearth::profiler_test
