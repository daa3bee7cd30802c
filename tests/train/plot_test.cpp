// SPDX-License-Identifier: Apache-2.0
#include "train/task/report/plot.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <sstream>

#include "tests/support/grouping_locale.h"

namespace hearth::train::plot_test {
namespace {

std::size_t count(const std::string& text, const std::string& part) {
  std::size_t n = 0;
  for (std::size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + part.size())) ++n;
  return n;
}

TEST(AxisTicks, are_round_and_inside) {
  EXPECT_EQ(axis_ticks(0, 10, 5), (std::vector<double>{0, 2, 4, 6, 8, 10}));
  EXPECT_EQ(axis_ticks(3.1, 16.9, 7), (std::vector<double>{4, 6, 8, 10, 12, 14, 16}));
  EXPECT_EQ(axis_ticks(-1, 1, 4), (std::vector<double>{-1, -0.5, 0, 0.5, 1}));
}

TEST(TickText, is_the_same_in_every_locale) {
  const test::GroupingLocale elsewhere;
  EXPECT_EQ(tick_text(1234), "1234");
  EXPECT_EQ(tick_text(0.25), "0.25");
  EXPECT_EQ(tick_text(2500000), "2.5M");
}

TEST(AxisTicks, hold_at_every_magnitude) {
  for (double scale = 1e-12; scale < 1e13; scale *= 10) {
    const auto ticks = axis_ticks(0.13 * scale, 0.97 * scale, 5);
    ASSERT_GE(ticks.size(), 3u) << scale;
    ASSERT_LE(ticks.size(), 7u) << scale;
    EXPECT_GE(ticks.front(), 0.13 * scale * (1 - 1e-6));
    EXPECT_LE(ticks.back(), 0.97 * scale * (1 + 1e-6));
  }
}

TEST(AxisTicks, of_an_empty_or_endless_range_are_one) {
  EXPECT_EQ(axis_ticks(2, 2, 5).size(), 1u);
  EXPECT_EQ(axis_ticks(0, std::numeric_limits<double>::infinity(), 5).size(), 1u);
}

TEST(TickText, is_short) {
  EXPECT_EQ(tick_text(0.05), "0.05");
  EXPECT_EQ(tick_text(1500), "1500");
  EXPECT_EQ(tick_text(12500), "12.5k");
  EXPECT_EQ(tick_text(-3e6), "-3M");
  EXPECT_EQ(tick_text(-1e-17), "0") << "what rounding leaves of 0";
}

TEST(Thinned, keeps_the_extremes_and_the_order) {
  std::vector<std::pair<double, double>> points;
  for (int i = 0; i < 10000; ++i) points.emplace_back(i, std::sin(i * 0.01));
  points[5003].second = 7;
  points[7777].second = -9;
  const auto few = thinned(points, 200);
  EXPECT_LE(few.size(), 200u);
  EXPECT_GE(few.size(), 100u);
  double low = 0, high = 0;
  for (std::size_t i = 0; i < few.size(); ++i) {
    if (i > 0) {
      EXPECT_LT(few[i - 1].first, few[i].first);
    }
    low = std::min(low, few[i].second);
    high = std::max(high, few[i].second);
  }
  EXPECT_EQ(low, -9);
  EXPECT_EQ(high, 7);
  EXPECT_EQ(thinned(points, 10000), points);
}

TEST(Svg, draws_each_curve_once) {
  Chart chart{.title = "loss <train>", .x_label = "epoch", .curves = {{"train", {{1, 2}, {2, 1}}}, {"test", {{2, 3}}}}};
  const std::string svg = to_svg(chart);
  EXPECT_EQ(count(svg, "<polyline"), 2u);
  EXPECT_EQ(count(svg, "<circle"), 3u);
  EXPECT_EQ(count(svg, "loss &lt;train&gt;"), 2u);
  EXPECT_EQ(count(svg, "<train>"), 0u);
  EXPECT_NE(svg.find("epoch 2: 3</title>"), std::string::npos);
  EXPECT_EQ(svg.find("nan"), std::string::npos);
}

TEST(Svg, stays_within_its_frame) {
  Chart chart{.title = "t", .x_label = "x", .curves = {{"a", {{0, -5}, {1, 13.7}, {100, 2}}}}};
  for (const Scale scale : {Scale::linear, Scale::from_zero}) {
    chart.scale = scale;
    const std::string svg = to_svg(chart);
    const std::size_t begin = svg.find("points=\"") + 8;
    std::istringstream points(svg.substr(begin, svg.find('"', begin) - begin));
    double x = 0, y = 0;
    char comma = 0;
    int n = 0;
    for (; points >> x >> comma >> y; ++n) {
      EXPECT_GE(x, 0);
      EXPECT_LE(x, 560);
      EXPECT_GE(y, 0);
      EXPECT_LE(y, 280);
    }
    EXPECT_EQ(n, 3);
  }
}

TEST(Svg, marks_what_lies_beside_the_curves) {
  Chart chart{.title = "t", .x_label = "x", .curves = {{"a", {{1, 1}, {4, 2}}}}};
  EXPECT_EQ(count(to_svg(chart), "class=\"mark\""), 0u);
  chart.marks = {0, 2, 4, 5};
  EXPECT_EQ(count(to_svg(chart), "class=\"mark\""), 3u) << "the last is behind the end";
}

TEST(Svg, leaves_out_what_is_not_finite) {
  const double nan = std::numeric_limits<double>::quiet_NaN(), infinity = std::numeric_limits<double>::infinity();
  Chart chart{.title = "t", .x_label = "x", .curves = {{"a", {{0, nan}, {1, infinity}, {2, 1}, {nan, 1}}}}};
  EXPECT_EQ(count(to_svg(chart), "<circle"), 1u);
  chart.curves[0].points = {{0, nan}};
  EXPECT_EQ(to_svg(chart), "");
  EXPECT_EQ(to_svg({}), "");
}

TEST(Svg, logarithmic_axes_leave_out_what_has_no_logarithm) {
  Chart chart{.title = "t",
              .x_label = "x",
              .scale = Scale::logarithmic,
              .curves = {{"a", {{0, 100}, {1, 0.01}, {2, 0}, {3, -1}}}}};
  const std::string svg = to_svg(chart);
  EXPECT_EQ(count(svg, "<circle"), 2u);
  for (const char* label : {">100<", ">10<", ">1<", ">0.1<", ">0.01<"}) EXPECT_NE(svg.find(label), std::string::npos);
}

TEST(Svg, an_axis_from_zero_of_nothing_but_zeros_has_none_below) {
  const Chart chart{.title = "t", .x_label = "x", .scale = Scale::from_zero, .curves = {{"a", {{0, 0}, {1, 0}}}}};
  const std::string svg = to_svg(chart);
  EXPECT_NE(svg.find(">1<"), std::string::npos);
  EXPECT_EQ(svg.find(">-"), std::string::npos);
}

TEST(Svg, charts_stand_side_by_side_but_for_those_without_a_point) {
  const Chart chart{.title = "t", .x_label = "x", .curves = {{"a", {{0, 1}, {1, 2}}}}};
  const std::string html = charts_html({chart, {}, chart});
  EXPECT_EQ(count(html, "<div><svg"), 2U);
  EXPECT_EQ(html.find("<div></div>"), std::string::npos);
}

TEST(Svg, shares_are_shown_as_percent_up_to_100) {
  const Chart chart{
      .title = "t", .x_label = "x", .percent = true, .curves = {{"a", {{0, 0.1}, {1, 1.0}}}, {"b", {{1, 1.0}}}}};
  const std::string svg = to_svg(chart);
  EXPECT_NE(svg.find(">100 %<"), std::string::npos);
  EXPECT_EQ(svg.find(">120 %<"), std::string::npos);
}

}  // namespace
}  // namespace hearth::train::plot_test
