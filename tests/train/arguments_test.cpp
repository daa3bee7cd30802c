// SPDX-License-Identifier: Apache-2.0
#include "train/cli/arguments.h"

#include <gtest/gtest.h>

#include "core/error.h"
#include "tests/support/error_message.h"

namespace hearth::train::arguments_test {
namespace {

using test::contains;

const CommandSpec command{
    "train",
    "CONFIG.json",
    1,
    2,
    "Trains a run.",
    {{"--set", "PATH=VALUE", "override a value"}, {"--out", "DIR", "folder"}, {"--dry-run", "", "plan"}},
    nullptr};

Arguments parse(const std::vector<std::string>& words) { return Arguments(command, words, "hearth"); }

std::string fault(const std::vector<std::string>& words) {
  return test::error_message<UsageError>([&] { parse(words); });
}

TEST(Arguments, options_may_stand_anywhere) {
  const Arguments arguments = parse({"--set", "a=1", "x.json", "--dry-run", "--set=b=2", "--out", "dir"});
  EXPECT_EQ(arguments.positional(), std::vector<std::string>{"x.json"});
  EXPECT_EQ(arguments.values("--set"), (std::vector<std::string>{"a=1", "b=2"}));
  EXPECT_EQ(arguments.value("--out"), "dir");
  EXPECT_TRUE(arguments.has("--dry-run"));
  EXPECT_EQ(arguments.command_line(), "hearth train --set a=1 x.json --dry-run --set=b=2 --out dir");
}

TEST(Arguments, the_last_value_counts_and_absent_ones_are_absent) {
  EXPECT_EQ(parse({"x.json", "--out", "a", "--out=b"}).value("--out"), "b");
  EXPECT_FALSE(parse({"x.json"}).value("--out").has_value());
  EXPECT_FALSE(parse({"x.json"}).has("--dry-run"));
}

TEST(Arguments, after_two_dashes_nothing_is_an_option) {
  EXPECT_EQ(parse({"--", "--out", "-x"}).positional(), (std::vector<std::string>{"--out", "-x"}));
  EXPECT_EQ(parse({"-"}).positional(), std::vector<std::string>{"-"}) << "a lone dash is a name";
}

TEST(Arguments, an_unknown_option_is_named_with_the_nearest) {
  const std::string message = fault({"x.json", "--ot", "dir"});
  EXPECT_PRED2(contains, message, "--ot");
  EXPECT_PRED2(contains, message, "--out");
}

TEST(Arguments, values_are_asked_for_and_refused) {
  EXPECT_PRED2(contains, fault({"x.json", "--out"}), "--out DIR");
  EXPECT_PRED2(contains, fault({"x.json", "--dry-run=yes"}), "takes no value");
}

TEST(Arguments, options_of_another_use_are_refused) {
  const Arguments arguments = parse({"x.json", "--set", "a=1", "--out", "dir"});
  EXPECT_NO_THROW(arguments.refuse_others("train this", {"--out", "--set"}));
  const std::string message = test::error_message<UsageError>([&] {
    arguments.refuse_others("train that", {"--set", "--dry-run"});
  });
  EXPECT_EQ(message, "train that: --out is not for it; it takes --set, --dry-run");
}

TEST(Arguments, whole_numbers_of_at_least_one_are_numbers) {
  const auto number = [](const std::string& text) { return parse({"x.json", "--out", text}).positive("--out", 7); };
  EXPECT_EQ(number("12"), 12);
  EXPECT_EQ(parse({"x.json"}).positive("--out", 7), 7);
  for (const char* wrong : {"0", "-3", "five", "5x", "", "1.5", "99999999999999999999"})
    EXPECT_PRED2(contains, test::error_message<UsageError>([&] { number(wrong); }), "at least 1") << wrong;
}

TEST(Arguments, too_few_and_too_many_are_told_the_usage) {
  EXPECT_PRED2(contains, fault({}), "hearth train CONFIG.json [options]");
  EXPECT_PRED2(contains, fault({"a", "b", "c"}), "3 arguments");
}

TEST(HelpOf, lists_every_option) {
  const std::string help = help_of(command);
  for (const char* part : {"Trains a run.", "--set PATH=VALUE", "override a value", "--out DIR", "--dry-run"})
    EXPECT_PRED2(contains, help, part);
}

}  // namespace
}  // namespace hearth::train::arguments_test
