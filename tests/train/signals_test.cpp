// SPDX-License-Identifier: Apache-2.0
#include "train/signals.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <thread>

#include "core/cpu/signals.h"

namespace hearth::train::signals_test {
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
  for (const int number : {SIGINT, SIGTERM, SIGHUP, SIGXCPU}) {
    const SignalScope signals;
    EXPECT_EQ(SignalScope::requested(), 0);
    raise(number);
    EXPECT_EQ(SignalScope::requested(), number);
  }
}

TEST(SignalScope, puts_back_what_was_there) {
  const DefaultHangups hangups;
  for (const int number : {SIGINT, SIGTERM, SIGHUP, SIGXCPU, SIGUSR1, SIGPIPE}) {
    const auto before = signal(number, SIG_DFL);
    {
      const SignalScope signals;
      EXPECT_NE(handler_of(number), SIG_DFL) << number;
    }
    EXPECT_EQ(handler_of(number), SIG_DFL) << number;
    signal(number, before);
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

TEST(SignalScope, takes_signals_while_the_thread_that_computes_blocks_them) {
  const SignalScope signals;
  const cpu::SignalBlock library_call;
  kill(getpid(), SIGTERM);
  while (SignalScope::requested() == 0) std::this_thread::yield();
  EXPECT_EQ(SignalScope::requested(), SIGTERM);
}

TEST(SignalScope, leaves_blocked_signals_to_the_program) {
  sigset_t one, before;
  sigemptyset(&one);
  sigaddset(&one, SIGTERM);
  pthread_sigmask(SIG_BLOCK, &one, &before);
  {
    const SignalScope signals;
    kill(getpid(), SIGTERM);
    int taken = 0;
    sigwait(&one, &taken);
    EXPECT_EQ(taken, SIGTERM);
    EXPECT_EQ(SignalScope::requested(), 0);
  }
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

TEST(SignalScope, trainings_side_by_side_stop_together) {
  const auto before = handler_of(SIGTERM);
  {
    const SignalScope first;
    { const SignalScope second; }
    raise(SIGTERM);
    EXPECT_EQ(SignalScope::requested(), SIGTERM);
  }
  EXPECT_EQ(handler_of(SIGTERM), before);
}

TEST(SurviveDeathTest, keeps_the_process_and_the_handlers_of_the_program) {
  EXPECT_EXIT(
      {
        survive(SIGUSR1);
        { const SignalScope signals; }
        raise(SIGUSR1);
        signal(SIGUSR2, [](int) { _exit(7); });
        survive(SIGUSR2);
        raise(SIGUSR2);
      },
      testing::ExitedWithCode(7), "");
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
}  // namespace hearth::train::signals_test
