// SPDX-License-Identifier: Apache-2.0
#include "ops/dispatch/plan_file.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core/io/file.h"
#include "tests/support/temp_dir.h"

namespace hearth::plan_file_test {
namespace {

using test::TempDir;

const PlanKey key{"library 1.2.3", "device \"7\"", "4x8 by 8x4"};

SavedPlans read(std::string_view text, std::vector<std::string>& remarks) {
  SavedPlans plans;
  read_plans(text, plans, remarks);
  return plans;
}

TEST(PlanFileTest, WhatIsWrittenIsRead) {
  SavedPlans plans;
  plans[key] = {"00ff", 1.25};
  plans[{"library 1.2.3", "device", "another\nproblem"}] = {"0a", 0};
  std::vector<std::string> remarks;
  const SavedPlans found = read(text_of_plans(plans), remarks);
  EXPECT_TRUE(remarks.empty());
  ASSERT_EQ(found.size(), 2u);
  EXPECT_EQ(found.at(key).plan, "00ff");
  EXPECT_EQ(found.at(key).microseconds, 1.25);
}

TEST(PlanFileTest, AnyPartOfTheKeyTellsPlansApart) {
  TempDir folder;
  PlanFile cache(folder / "plans");
  ASSERT_TRUE(cache.keep(key, {"a", 1}).has_value());
  EXPECT_NE(cache.find(key), nullptr);
  EXPECT_EQ(cache.find({"library 1.2.4", key.device, key.problem}), nullptr);
  EXPECT_EQ(cache.find({key.library, "device", key.problem}), nullptr);
  EXPECT_EQ(cache.find({key.library, key.device, "4x8 by 8x5"}), nullptr);
}

TEST(PlanFileTest, DamagedLinesAreLeftOutAndSaid) {
  const std::string good = text_of_plans({{key, {"a", 1}}});
  const struct {
    std::string text;
    std::size_t plans;
    const char* remark;
  } cases[] = {
      {good + "{\"library\":\"lib", 1, "line 3"},
      {good + "{\"library\":\"x\"}\n", 1, "line 3"},
      {good + "{\"library\":\"x\",\"device\":\"y\",\"problem\":\"z\",\"plan\":\"\",\"microseconds\":1}\n", 1, "line 3"},
      {good + "{\"library\":\"x\",\"device\":\"y\",\"problem\":\"z\",\"plan\":\"b\",\"microseconds\":-1}\n", 1,
       "line 3"},
      {good + "\n", 1, "line 3"},
      {"{\"hearth_plans\":2}\n" + good.substr(good.find('\n') + 1), 0, "version 1"},
      {"\x7f\x45\x4c\x46", 0, "line 1"},
      {good.substr(good.find('\n') + 1), 0, "version 1"},
  };
  for (const auto& c : cases) {
    std::vector<std::string> remarks;
    EXPECT_EQ(read(c.text, remarks).size(), c.plans) << c.text;
    ASSERT_EQ(remarks.size(), 1u) << c.text;
    EXPECT_NE(remarks[0].find(c.remark), std::string::npos) << remarks[0];
  }
  std::vector<std::string> remarks;
  EXPECT_TRUE(read("", remarks).empty());
  EXPECT_TRUE(remarks.empty()) << "an empty file is a new one";
}

TEST(PlanFileTest, KeepsFromOneProcessToTheNext) {
  TempDir folder;
  const auto file = folder / "below" / "plans";
  EXPECT_TRUE(PlanFile(file).keep(key, {"a", 2}).has_value());
  const PlanFile later(file);
  ASSERT_NE(later.find(key), nullptr);
  EXPECT_EQ(later.find(key)->plan, "a");
  EXPECT_TRUE(later.remarks().empty());
}

TEST(PlanFileTest, TheFirstProcessDecides) {
  TempDir folder;
  PlanFile one(folder / "plans"), other(folder / "plans");
  EXPECT_EQ(one.keep(key, {"a", 2})->plan, "a");
  EXPECT_EQ(other.keep(key, {"b", 1})->plan, "a");
  EXPECT_EQ(other.find(key)->plan, "a");
  // Unless its choice serves no more.
  EXPECT_EQ(other.keep(key, {"b", 1}, "a")->plan, "b");
  EXPECT_EQ(one.keep(key, {"c", 1}, "a")->plan, "b");
}

TEST(PlanFileTest, ProcessesLoseNothingOfEachOther) {
  TempDir folder;
  constexpr int processes = 4, each = 25;
  std::vector<pid_t> children;
  for (int i = 0; i < processes; ++i) {
    const pid_t child = ::fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      PlanFile cache(folder / "plans");
      bool kept = true;
      for (int n = 0; n < each; ++n)
        kept = kept && cache.keep({"l", "d", std::to_string(i) + "/" + std::to_string(n)}, {"a", 1}).has_value();
      ::_exit(kept ? 0 : 1);
    }
    children.push_back(child);
  }
  for (const pid_t child : children) {
    int status = 0;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0);
  }
  const PlanFile all(folder / "plans");
  EXPECT_EQ(all.plans().size(), std::size_t{processes} * each);
  EXPECT_TRUE(all.remarks().empty());
}

TEST(PlanFileTest, AFolderThatCannotBeWrittenIsNoError) {
  TempDir folder;
  folder.write("file", {});
  PlanFile cache(folder / "file" / "plans");
  EXPECT_FALSE(cache.keep(key, {"a", 1}).has_value());
  EXPECT_EQ(cache.find(key), nullptr);
  ASSERT_FALSE(cache.remarks().empty());
  EXPECT_NE(cache.remarks().back().find("cannot be written"), std::string::npos) << cache.remarks().back();
  std::filesystem::create_directory(folder / "plans");
  PlanFile taken(folder / "plans");
  EXPECT_FALSE(taken.keep(key, {"a", 1}).has_value());
  EXPECT_EQ(taken.find(key), nullptr) << "what is not in the file does not hold";
  PlanFile nowhere("");
  EXPECT_FALSE(nowhere.keep(key, {"a", 1}).has_value());
  EXPECT_EQ(nowhere.remarks().size(), 1u);
}

TEST(PlanFileTest, TheFolderIsWhatTheEnvironmentSays) {
  const auto folder_with = [](const char* cache, const char* xdg, const char* home) {
    ::setenv("HEARTH_CACHE_DIR", cache, 1);
    ::setenv("XDG_CACHE_HOME", xdg, 1);
    ::setenv("HOME", home, 1);
    return cache_folder().string();
  };
  const std::string home = std::getenv("HOME") == nullptr ? "" : std::getenv("HOME");
  EXPECT_EQ(folder_with("/a", "/b", "/c"), "/a");
  EXPECT_EQ(folder_with("", "/b", "/c"), "/b/hearth");
  EXPECT_EQ(folder_with("", "", "/c"), "/c/.cache/hearth");
  EXPECT_EQ(folder_with("", "", ""), "");
  ::setenv("HOME", home.c_str(), 1);
}

}  // namespace
}  // namespace hearth::plan_file_test
