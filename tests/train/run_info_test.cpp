// SPDX-License-Identifier: Apache-2.0
#include "train/checkpoint/run_info.h"

#include <gtest/gtest.h>

#include <fstream>

#include "core/io/file.h"
#include "tests/support/temp_dir.h"

namespace hearth::train::run_info_test {
namespace {

const std::string first_commit(40, 'a');
const std::string second_commit(40, 'b');

void put(const std::filesystem::path& path, const std::string& text) {
  std::filesystem::create_directories(path.parent_path());
  std::ofstream(path) << text;
}

TEST(GitRevision, follows_the_branch_from_a_folder_inside) {
  const test::TempDir tree;
  put(tree / ".git/HEAD", "ref: refs/heads/main\n");
  put(tree / ".git/refs/heads/main", first_commit + "\n");
  std::filesystem::create_directories(tree / "a/b");
  EXPECT_EQ(git_revision(tree / "a/b"), first_commit);
}

TEST(GitRevision, reads_packed_references) {
  const test::TempDir tree;
  put(tree / ".git/HEAD", "ref: refs/heads/main\n");
  put(tree / ".git/packed-refs",
      "# pack-refs with: peeled\n" + second_commit + " refs/heads/mainly\n" + first_commit + " refs/heads/main\n");
  EXPECT_EQ(git_revision(tree.path()), first_commit);
}

TEST(GitRevision, reads_a_detached_head) {
  const test::TempDir tree;
  put(tree / ".git/HEAD", second_commit + "\n");
  EXPECT_EQ(git_revision(tree.path()), second_commit);
}

TEST(GitRevision, follows_the_file_of_a_linked_tree) {
  const test::TempDir tree;
  put(tree / "main/.git/refs/heads/topic", second_commit + "\n");
  put(tree / "main/.git/worktrees/linked/HEAD", "ref: refs/heads/topic\n");
  put(tree / "main/.git/worktrees/linked/commondir", "../..\n");
  put(tree / "linked/.git", "gitdir: " + (tree / "main/.git/worktrees/linked").string() + "\n");
  EXPECT_EQ(git_revision(tree / "linked"), second_commit);
}

TEST(GitRevision, is_empty_outside_a_repository) {
  const test::TempDir tree;
  EXPECT_EQ(git_revision(tree.path()), "");
}

TEST(UtcNow, has_its_form) {
  const std::string now = utc_now();
  ASSERT_EQ(now.size(), 20u);
  for (const std::size_t dash : {4u, 7u}) EXPECT_EQ(now[dash], '-');
  EXPECT_EQ(now[10], 'T');
  EXPECT_EQ(now[19], 'Z');
  EXPECT_GE(now.substr(0, 4), "2024");
}

TEST(RunInfo, says_what_ran_and_how_it_ended) {
  const test::TempDir folder;
  const std::string path = folder / "run.json";
  const RunInfo info(path, {"digits", 7, "cpu", "hearth train digits.json"});
  info.write("running");
  EXPECT_EQ(read_json(path).at("status").as_string(), "running");
  info.write("finished", {.metrics = Json::object().set("accuracy", 0.5)});
  const Json written = read_json(path);
  EXPECT_EQ(written.at("status").as_string(), "finished");
  EXPECT_EQ(written.at("name").as_string(), "digits");
  EXPECT_EQ(written.at("seed").as_integer(), 7);
  EXPECT_EQ(written.at("device").as_string(), "cpu");
  EXPECT_EQ(written.at("command").as_string(), "hearth train digits.json");
  EXPECT_EQ(written.at("metrics").at("accuracy").as_number(), 0.5);
  EXPECT_GE(written.at("seconds").as_number(), 0);
  EXPECT_LE(written.at("started").as_string(), written.at("written").as_string());
  EXPECT_FALSE(written.at("versions").at("hearth").as_string().empty());
  EXPECT_GE(written.at("machine").at("threads").as_integer(), 1);
  EXPECT_EQ(written.at("machine").at("processor").as_string(), processor_name());
}

}  // namespace
}  // namespace hearth::train::run_info_test
