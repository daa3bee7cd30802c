// SPDX-License-Identifier: Apache-2.0
#include "train/report/progress.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <cstdlib>
#include <limits>
#include <sstream>

#include "tests/support/error_message.h"
#include "tests/support/variable_scope.h"
#include "tests/train/hook_run.h"

namespace hearth::train::progress_test {
namespace {

using test::contains;

const Progress::Step sample{
    .step = 45, .loss = 0.5, .accuracy = 0.875, .lr = 0.05, .images_per_second = 1234, .wait_fraction = 0.03};

const Progress::Step later{
    .step = 46, .loss = 0.5, .accuracy = 0.875, .lr = 0.05, .images_per_second = 1234, .wait_fraction = 0.03};

TEST(DurationText, reads_like_a_person_writes) {
  EXPECT_EQ(duration_text(4.24), "4.2s");
  EXPECT_EQ(duration_text(59.97), "1m 00s");
  EXPECT_EQ(duration_text(200), "3m 20s");
  EXPECT_EQ(duration_text(3600 + 120 + 59), "1h 02m");
  EXPECT_EQ(duration_text(-1), "0.0s");
  EXPECT_EQ(duration_text(std::numeric_limits<double>::quiet_NaN()), "0.0s");
  EXPECT_EQ(duration_text(std::numeric_limits<double>::infinity()), "277777h 46m");
}

TEST(Progress, outside_a_terminal_is_one_plain_line_an_interval) {
  std::ostringstream out;
  Progress progress(out, false);
  progress.start(0, 100, 20);
  progress.step(sample);
  progress.step(later);
  progress.interval(sample);
  const std::string line = out.str();
  EXPECT_EQ(line.find('\x1b'), std::string::npos);
  EXPECT_EQ(line.find('\r'), std::string::npos);
  EXPECT_EQ(line.find('\n'), line.size() - 1);
  for (const char* part : {"epoch 3/5", "step 45/100", "loss 0.5000", "accuracy 87.50 %", "1234 images/s", "lr 0.05",
                           "data wait 3 %", "left ", " (epoch "})
    EXPECT_PRED2(contains, line, part);
  EXPECT_EQ(line.find("comm wait"), std::string::npos) << "one process waits for no other";
}

TEST(Progress, shows_no_loss_where_every_update_was_skipped) {
  std::ostringstream out;
  Progress progress(out, false);
  progress.start(0, 100, 20);
  Progress::Step now = sample;
  now.loss.reset();
  now.accuracy = -1;
  now.overflowed = true;
  progress.step(now);
  EXPECT_PRED2(contains, out.str(), "step 45/100  every update skipped: gradients overflow  1234 images/s");
}

TEST(Progress, tells_labels_that_do_not_count_from_skipped_updates) {
  const test::HookRuns runs;
  const auto console = [&](const std::string& name, std::vector<std::string> more) {
    more.insert(more.end(), {"train.epochs=null", "log.every_steps=1"});
    return runs.run(name, more).console;
  };
  const std::string ignored = R"(loss={"type": "cross_entropy", "ignore_index": 4})";
  const std::string f16 = R"(precision={"level": "O1", "dtype": "f16", "loss_scale": 16})";
  for (const std::string& precision : {std::string("seed=3"), f16}) {
    const std::string lines =
        console("ignored" + precision.substr(0, 4), {"train.batch_size=1", "train.steps=20", ignored, precision});
    EXPECT_PRED2(contains, lines, "  no label counted  ");
    EXPECT_EQ(lines.find("overflow"), std::string::npos) << lines;
  }
  // f16 holds no gradient at this scale.
  const std::string beyond = R"(precision={"level": "O2", "dtype": "f16", "loss_scale": 1e30})";
  const std::string lines = console("skipped", {beyond, "train.steps=5"});
  EXPECT_PRED2(contains, lines, "step 5/5  every update skipped: gradients overflow  ");
  EXPECT_EQ(lines.find("no label counted"), std::string::npos) << lines;
}

TEST(Progress, shows_what_waits_for_other_ranks) {
  std::ostringstream out;
  Progress progress(out, false);
  progress.start(0, 100, 20);
  Progress::Step now = sample;
  now.communication_fraction = 0.12;
  now.scaling_efficiency = 0.87;
  progress.step(now);
  EXPECT_PRED2(contains, out.str(), "data wait 3 %  comm wait 12 %  scaling 87 %  left ");
}

TEST(Progress, on_a_terminal_redraws_one_line) {
  std::ostringstream out;
  Progress progress(out, true);
  progress.start(0, 100, 20);
  progress.step(sample);
  progress.interval(sample);
  const std::string drawn = out.str();
  EXPECT_EQ(drawn.find('\n'), std::string::npos);
  EXPECT_PRED2(contains, drawn, "step 45/100");
  EXPECT_PRED2(contains, drawn, "[=========           ]");
  progress.line("evaluated");
  EXPECT_EQ(out.str(), drawn + "\r\x1b[2Kevaluated\n");
}

TEST(Progress, fits_the_width_of_the_terminal) {
  for (const int columns : {40, 60, 79, 80, 100, 132, 200}) {
    std::ostringstream out;
    Progress progress(out, Terminal{.live = true, .colour = false, .columns = [columns] { return columns; }});
    progress.start(0, 100'000, 1000);
    progress.step({.step = 1,
                   .loss = 2.25,
                   .accuracy = 0.5,
                   .lr = 0.1,
                   .images_per_second = 12345,
                   .wait_fraction = 0.5,
                   .waits_for = "decoding",
                   .communication_fraction = 0.1,
                   .scaling_efficiency = 0.9});
    const std::string begin = "\x1b[?7l", end = "\x1b[?7h", text = out.str();
    ASSERT_TRUE(text.find(begin) != text.npos && text.ends_with(end)) << text;
    const std::size_t at = text.find(begin) + begin.size();
    const std::string line = text.substr(at, text.size() - end.size() - at);
    EXPECT_LE(line.size(), static_cast<std::size_t>(columns)) << line;
    EXPECT_PRED2(test::contains, line, "12345 images/s  ") << columns;
    EXPECT_PRED2(test::contains, line, "left ") << columns;
    EXPECT_PRED2(test::contains, line, "loss 2.2500") << columns;
    EXPECT_EQ(line.find("scaling 90 %") != line.npos, columns == 200) << line;
    EXPECT_EQ(line.front() == '[', columns >= 80) << line;
    EXPECT_EQ(line.find('\x1b'), line.npos) << "no colour";
  }
}

TEST(Terminal, CannotRedrawWhereItIsDumbOrNone) {
  const int master = posix_openpt(O_RDWR | O_NOCTTY);
  ASSERT_TRUE(master >= 0 && grantpt(master) == 0 && unlockpt(master) == 0);
  const int slave = open(ptsname(master), O_RDWR | O_NOCTTY);
  ASSERT_GE(slave, 0);
  const winsize size{.ws_row = 24, .ws_col = 57, .ws_xpixel = 0, .ws_ypixel = 0};
  ASSERT_EQ(ioctl(slave, TIOCSWINSZ, &size), 0);
  {
    const test::VariableScope term("TERM", "xterm"), colour("NO_COLOR", "");
    EXPECT_TRUE(terminal_of(slave).live);
    EXPECT_TRUE(terminal_of(slave).colour);
    EXPECT_EQ(terminal_of(slave).columns(), 57);
  }
  {
    const test::VariableScope term("TERM", "dumb"), colour("NO_COLOR", "1");
    EXPECT_FALSE(terminal_of(slave).live);
    EXPECT_FALSE(terminal_of(slave).colour);
  }
  close(master);
  close(slave);
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  EXPECT_FALSE(terminal_of(ends[1]).live);
  for (const int descriptor : ends) close(descriptor);
}

TEST(Progress, on_a_terminal_is_not_drawn_for_every_step) {
  std::ostringstream out;
  Progress progress(out, true);
  progress.start(0, 1000000, 20);
  Progress::Step now = sample;
  for (now.step = 1; now.step <= 50; ++now.step) progress.step(now);
  const std::string drawn = out.str();
  std::size_t lines = 0;
  for (std::size_t at = drawn.find("step "); at != std::string::npos; at = drawn.find("step ", at + 1)) ++lines;
  EXPECT_GE(lines, 1u);
  EXPECT_LT(lines, 50u);
}

TEST(Progress, shows_the_first_step_at_once) {
  for (const bool live : {false, true}) {
    std::ostringstream out;
    Progress progress(out, live);
    progress.start(44, 100, 20);
    EXPECT_TRUE(progress.wants_step());
    progress.step(sample);
    EXPECT_PRED2(contains, out.str(), "step 45/100");
    EXPECT_FALSE(progress.wants_step());
    const std::string first = out.str();
    progress.step(later);
    EXPECT_EQ(out.str(), first);
    progress.interval(later);
    EXPECT_EQ(contains(out.str(), "step 46/100"), !live);
  }
}

TEST(Progress, draws_the_last_step_whatever_the_time) {
  std::ostringstream out;
  Progress progress(out, true);
  progress.start(0, 100, 20);
  progress.step(sample);
  Progress::Step last = sample;
  last.step = 100;
  progress.step(last);
  EXPECT_PRED2(contains, out.str(), "step 100/100");
  EXPECT_PRED2(contains, out.str(), "epoch 5/5");
}

}  // namespace
}  // namespace hearth::train::progress_test
