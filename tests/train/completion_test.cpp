// SPDX-License-Identifier: Apache-2.0
// The scripts for shells and the manual page, as shells and man read them.
#include <gtest/gtest.h>

#include "tests/support/error_message.h"
#include "tests/support/places.h"
#include "tests/support/run_program.h"
#include "train/cli/commands.h"

namespace hearth::train::completion_test {
namespace {

using test::contains;
using test::ProgramResult;

class Completion : public testing::Test {
 protected:
  ProgramResult hearth(std::vector<std::string> words) const {
    words.insert(words.begin(), test::hearth_program());
    return test::run_program(std::move(words), folder_.path());
  }
  void write(const std::string& name, const std::string& text) const {
    folder_.write(name, std::vector<std::uint8_t>(text.begin(), text.end()));
  }
  /// What `script` prints, run in the folder; the test fails where it ends with another code than 0 or complains.
  std::string shell(const std::string& script) const {
    const ProgramResult result = test::run_program({"/bin/bash", "--norc", "-c", script}, folder_.path());
    EXPECT_EQ(result.exit_code, 0) << script << "\n" << result.err;
    EXPECT_EQ(result.err, "") << script;
    return result.out;
  }
  bool has(const std::string& program) const {
    return test::run_program({"/bin/bash", "-c", "command -v " + program}, folder_.path()).exit_code == 0;
  }
  /// What bash offers for the last of `words`, which stand in an array of it.
  std::string offered(const std::string& words) const {
    return shell("source ./hearth.bash; COMP_WORDS=(hearth " + words +
                 "); COMP_CWORD=$((${#COMP_WORDS[@]} - 1)); _hearth; echo \"${COMPREPLY[*]}\"");
  }
  test::TempDir folder_;
};

TEST_F(Completion, scripts_and_the_manual_have_every_command_and_option) {
  const std::string manual = hearth({"manual"}).out;
  for (const std::string shell : {"bash", "zsh", "fish"}) {
    const ProgramResult result = hearth({"completion", shell});
    ASSERT_EQ(result.exit_code, 0) << result.err;
    for (const CommandSpec& command : commands()) {
      EXPECT_PRED2(contains, result.out, command.name) << shell;
      EXPECT_PRED2(contains, manual, "\n.SS hearth " + command.name);
      for (const OptionSpec& option : command.options) {
        EXPECT_PRED2(contains, result.out, (shell == "fish" ? "-l " + option.name.substr(2) : option.name)) << shell;
        std::string escaped;
        for (const char c : option.name) escaped += c == '-' ? "\\-" : std::string(1, c);
        EXPECT_PRED2(contains, manual, escaped);
      }
    }
  }
  const ProgramResult other = hearth({"completion", "tcsh"});
  EXPECT_EQ(other.exit_code, 2);
  EXPECT_PRED2(contains, other.err, "tcsh");
  EXPECT_PRED2(contains, other.err, "bash, zsh or fish");
}

TEST_F(Completion, bash_offers_what_fits) {
  write("hearth.bash", hearth({"completion", "bash"}).out);
  write("run.json", "{}");
  write("notes.txt", "");
  write("runs/first/metrics.jsonl", "");
  EXPECT_EQ(offered("tra"), "train trace\n");
  EXPECT_EQ(offered("help tu"), "tune\n");
  EXPECT_EQ(offered("train --dev"), "--device\n");
  EXPECT_EQ(offered("train --device c"), "cpu cuda\n");
  EXPECT_EQ(offered("train --resume ''"), "auto never runs/\n");
  EXPECT_EQ(offered("train r"), "run.json runs/\n") << "configurations and folders, no other file";
  EXPECT_EQ(offered("eval runs/"), "runs/first/\n");
  EXPECT_EQ(offered("report runs/"), "runs/first/\n");
  EXPECT_EQ(offered("predict runs/first n"), "notes.txt\n");
  EXPECT_EQ(offered("bench s"), "step\n");
}

TEST_F(Completion, shells_and_man_take_what_was_made) {
  write("_hearth", hearth({"completion", "zsh"}).out);
  write("hearth.fish", hearth({"completion", "fish"}).out);
  write("hearth.1", hearth({"manual"}).out);
  shell(hearth({"completion", "bash"}).out);
  int absent = 0;
  if (has("zsh"))
    shell("zsh -n _hearth");
  else
    ++absent;
  if (has("fish"))
    shell("fish --no-config --no-execute hearth.fish");
  else
    ++absent;
  if (has("groff"))
    EXPECT_PRED2(contains, shell("groff -man -Tascii -ww hearth.1"), "hearth");
  else
    ++absent;
  if (absent > 0) GTEST_SKIP() << absent << " of zsh, fish and groff are not installed";
}

}  // namespace
}  // namespace hearth::train::completion_test
