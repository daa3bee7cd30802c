// SPDX-License-Identifier: Apache-2.0
#include "train/cli/name_filter.h"

#include <gtest/gtest.h>

#include <string>

#include "core/error.h"
#include "tests/support/error_message.h"

namespace hearth::train::name_filter_test {
namespace {

using test::contains;
using test::error_message;

bool found(const std::string& pattern, const std::string& name) { return NameFilter(pattern).matches(name); }

TEST(NameFilterTest, FindsWhatAnExpressionMeans) {
  const std::string name = "conv2d/56x56x64/forward/bf16";
  for (const char* pattern : {"",
                              "conv",
                              "^conv",
                              "bf16$",
                              "^conv2d/.*/bf16$",
                              "x.6x",
                              "matmul|conv",
                              "conv[0-9]d",
                              "(for|back)ward",
                              "co*nv",
                              "con+v",
                              "conw?v",
                              "^(conv2d|conv3d)/",
                              "[^a-z]d",
                              "2d\\/5",
                              "()",
                              "a*",
                              "(a*)*",
                              "(a|b|)+/56",
                              "^^conv",
                              "16$|$",
                              "[x/]5",
                              "6x[5-6-]6"})
    EXPECT_TRUE(found(pattern, name)) << pattern;
  for (const char* pattern : {"relu", "^2d", "conv$", "x..6x5", "matmul|norm", "conv[3-9]d", "^(for|back)ward",
                              "coo+nv", "conwv", "[^c]onv2d", "bf16.", "z+", "conv2d\\.", "CONV"})
    EXPECT_FALSE(found(pattern, name)) << pattern;
  EXPECT_TRUE(found("[]]", "]"));
  EXPECT_TRUE(found("^$", ""));
  EXPECT_FALSE(found("^$", "a"));
  EXPECT_TRUE(found("^(ab|c(d|e)*)+f$", "abcdedabcf"));
  EXPECT_FALSE(found("^(ab|c(d|e)*)+f$", "abcdeadbcf"));
}

TEST(NameFilterTest, FaultsAreNamed) {
  for (const auto& [pattern, fault] : {std::pair<std::string, std::string>{"(a", "Unmatched ("},
                                       {"[a", "Unmatched ["},
                                       {"a{3", "Unmatched \\{"},
                                       {"a\\", "Trailing backslash"},
                                       {"[z-a]", "Invalid range end"},
                                       {"(a)\\1", "\\1 asks for what was matched before"}})
    EXPECT_PRED2(contains, error_message<UsageError>([&] { NameFilter{pattern}; }), fault);
}

// Each takes std::regex minutes, or its stack.
TEST(NameFilterTest, HostilePatternsTakeNoTime) {
  const std::string name(60, 'a');
  std::string many;
  for (int i = 0; i < 60; ++i) many += "a*";
  for (const std::string& pattern :
       {std::string("^(a*)*b"), std::string("^(a|a)*b"), std::string("^((a+)+)+b"), many + "b"})
    EXPECT_FALSE(found(pattern, name)) << pattern;
  const std::size_t half = NameFilter::longest_pattern / 2;
  EXPECT_TRUE(found(std::string(half, '(') + std::string(half, ')'), name));
  EXPECT_TRUE(found("a" + std::string(NameFilter::longest_pattern - 1, '*'), name));
  EXPECT_PRED2(contains, error_message<UsageError>([&] { NameFilter{std::string(100'000, '(')}; }),
               "100000 characters");
}

}  // namespace
}  // namespace hearth::train::name_filter_test
