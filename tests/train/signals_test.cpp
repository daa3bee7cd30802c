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

TEST(SignalScope, notes_the_signal_that_asked_for_a_stop) {
  for (const int number : {SIGINT, SIGTERM}) {
    const SignalScope signals;
    EXPECT_EQ(SignalScope::requested(), 0);
    raise(number);
    EXPECT_EQ(SignalScope::requested(), number);
  }
}

TEST(SignalScope, puts_back_what_was_there) {
  const auto before_int = handler_of(SIGINT), before_term = handler_of(SIGTERM);
  {
    const SignalScope signals;
    EXPECT_NE(handler_of(SIGINT), before_int);
    EXPECT_NE(handler_of(SIGTERM), before_term);
  }
  EXPECT_EQ(handler_of(SIGINT), before_int);
  EXPECT_EQ(handler_of(SIGTERM), before_term);
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
