// SPDX-License-Identifier: Apache-2.0
#include "core/switches.h"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "core/cpu/parallel.h"
#include "core/tf32.h"

namespace hearth::switches_test {
namespace {

TEST(Switches, AScopeIsOfItsThread) {
  const SwitchScope scope({.deterministic = true, .repeatable = false, .tf32 = true});
  EXPECT_TRUE(cpu::deterministic());
  EXPECT_TRUE(allows_tf32());
  EXPECT_FALSE(switches().repeatable);
  {
    const SwitchScope inner({});
    EXPECT_FALSE(cpu::deterministic());
  }
  EXPECT_TRUE(cpu::deterministic());
  std::thread([] {
    EXPECT_FALSE(cpu::deterministic());
    EXPECT_FALSE(allows_tf32());
    EXPECT_TRUE(switches().repeatable);
  }).join();
}

TEST(Switches, Tf32IsByOperation) {
  const SwitchScope scope({.tf32 = {false, true}});
  EXPECT_FALSE(allowed_tf32().matmul);
  EXPECT_TRUE(allowed_tf32().conv);
  EXPECT_FALSE(allows_tf32());
}

TEST(Switches, ThePoolHasThoseOfTheCaller) {
  std::atomic<int> wrong{0};
  const auto check = [&](bool expected) {
    cpu::parallel_chunks(64, [&](std::int64_t) { wrong += cpu::deterministic() == expected ? 0 : 1; });
  };
  {
    const SwitchScope scope({.deterministic = true});
    check(true);
  }
  check(false);
  EXPECT_EQ(wrong, 0);
}

TEST(Switches, ThoseOfTheProcessAreOfAllThreadsWithoutAScope) {
  cpu::set_deterministic(true);
  std::thread([] { EXPECT_TRUE(cpu::deterministic()); }).join();
  {
    const SwitchScope scope({});
    EXPECT_FALSE(cpu::deterministic());
    set_allows_tf32(true);
    EXPECT_FALSE(allows_tf32()) << "that of the process";
  }
  EXPECT_TRUE(allows_tf32());
  EXPECT_TRUE(cpu::deterministic());
  set_allows_tf32(false);
  cpu::set_deterministic(false);
}

}  // namespace
}  // namespace hearth::switches_test
