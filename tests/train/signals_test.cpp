// SPDX-License-Identifier: Apache-2.0
#include "hearth/train/signals.h"

#include <gtest/gtest.h>
#include <signal.h>

namespace hearth::train {
namespace {

void (*handler_of(int number))(int) {
  struct sigaction action {};
  sigaction(number, nullptr, &action);
  return action.sa_handler;
}

/// Hangups as by default, though this process may have been started to ignore them, as nohup does.
struct DefaultHangups {
  void (*before)(int) = signal(SIGHUP, SIG_DFL);
  ~DefaultHangups() { signal(SIGHUP, before); }
};

TEST(SignalScope, notes_the_signal_that_asked_for_a_stop) {
  const DefaultHangups hangups;
  for (const int number : {SIGINT, SIGTERM, SIGHUP}) {
    const SignalScope signals;
    EXPECT_EQ(SignalScope::requested(), 0);
    raise(number);
    EXPECT_EQ(SignalScope::requested(), number);
  }
}

TEST(SignalScope, puts_back_what_was_there) {
  const DefaultHangups hangups;
  for (const int number : {SIGINT, SIGTERM, SIGHUP, SIGUSR1, SIGPIPE}) {
    const auto before = handler_of(number);
    {
      const SignalScope signals;
      EXPECT_NE(handler_of(number), before) << number;
    }
    EXPECT_EQ(handler_of(number), before) << number;
  }
}

TEST(SignalScope, a_closing_terminal_hangs_up_twice) {
  const DefaultHangups hangups;
  const SignalScope signals;
  raise(SIGTERM);
  raise(SIGHUP);
  raise(SIGHUP);
  EXPECT_EQ(SignalScope::requested(), SIGTERM);
}

TEST(SignalScope, leaves_an_ignored_hangup_ignored) {
  const auto before = signal(SIGHUP, SIG_IGN);
  {
    const SignalScope signals;
    raise(SIGHUP);
    EXPECT_EQ(SignalScope::requested(), 0);
  }
  EXPECT_EQ(handler_of(SIGHUP), SIG_IGN);
  signal(SIGHUP, before);
}

TEST(SignalScope, a_user_signal_asks_for_one_checkpoint) {
  const SignalScope signals;
  EXPECT_FALSE(SignalScope::checkpoint_requested());
  raise(SIGUSR1);
  EXPECT_TRUE(SignalScope::checkpoint_requested());
  EXPECT_FALSE(SignalScope::checkpoint_requested());
  EXPECT_EQ(SignalScope::requested(), 0) << "the training goes on";
}

TEST(SignalScope, survives_a_closed_pipe) {
  const SignalScope signals;
  raise(SIGPIPE);
  EXPECT_EQ(SignalScope::requested(), 0);
}

TEST(SignalScopeDeathTest, a_second_signal_ends_the_process_at_once) {
  EXPECT_EXIT(
      {
        const SignalScope signals;
        raise(SIGINT);
        raise(SIGTERM);
      },
      testing::ExitedWithCode(128 + SIGTERM), "");
}

}  // namespace
}  // namespace hearth::train
