// SPDX-License-Identifier: Apache-2.0
// The size of the thread pool: cores that the system grants, limits of OpenMP, what the environment asks.
#include "core/cpu/parallel.h"

#include <gtest/gtest.h>
#include <omp.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <string>
#include <thread>
#include <vector>

#include "core/cpu/cores.h"
#include "core/error.h"
#include "core/switches.h"
#include "core/tensor.h"
#include "tests/core/cpu/system_files.h"

namespace hearth::cpu::parallel_test {
namespace {

struct System : test::SystemFiles {
  using SystemFiles::SystemFiles;
  System& file(const std::string& name, const std::string& text) {
    SystemFiles::file(name, text);
    return *this;
  }
  int cores() const { return available_cores(root()); }
};

/// What a machine of this size may use of `granted` cores.
int of_this_machine(int granted) { return std::min(granted, available_cores("/nonexistent")); }

TEST(AvailableCores, AreAtLeastOneAndAtMostThoseOfTheMask) {
  const int mask = available_cores("/nonexistent");
  EXPECT_GE(mask, 1);
  EXPECT_LE(available_cores(), mask);
  EXPECT_GE(available_cores(), 1);
}

TEST(AvailableCores, FollowTheLimitOfAGroupAndOfThoseAbove) {
  EXPECT_EQ(System("0::/").file("sys/fs/cgroup/cpu.max", "100000 100000").cores(), 1);
  EXPECT_EQ(System("0::/").file("sys/fs/cgroup/cpu.max", "50000 100000").cores(), 1);
  EXPECT_EQ(System("0::/").file("sys/fs/cgroup/cpu.max", "150000 100000").cores(), of_this_machine(2));
  EXPECT_EQ(System("0::/").file("sys/fs/cgroup/cpu.max", "max 100000").cores(), of_this_machine(4096));
  System nested("0::/outer/inner");
  nested.file("sys/fs/cgroup/outer/inner/cpu.max", "max 100000");
  EXPECT_EQ(nested.cores(), of_this_machine(4096));
  EXPECT_EQ(nested.file("sys/fs/cgroup/outer/cpu.max", "20000 100000").cores(), 1);
}

TEST(AvailableCores, FollowTheLimitsOfTheFirstInterface) {
  const auto group = [](const std::string& quota) {
    System system("3:memory:/a\n2:cpu,cpuacct:/a");
    system.file("sys/fs/cgroup/cpu,cpuacct/a/cpu.cfs_quota_us", quota);
    system.file("sys/fs/cgroup/cpu,cpuacct/a/cpu.cfs_period_us", "100000");
    return system.cores();
  };
  EXPECT_EQ(group("100000"), 1);
  EXPECT_EQ(group("-1"), of_this_machine(4096));
}

TEST(AvailableCores, PassOverFilesThatSayNothing) {
  EXPECT_EQ(System("nonsense").cores(), of_this_machine(4096));
  EXPECT_EQ(System("0::/").file("sys/fs/cgroup/cpu.max", "").cores(), of_this_machine(4096));
  EXPECT_EQ(System("0::/").file("sys/fs/cgroup/cpu.max", "100000 0").cores(), of_this_machine(4096));
}

TEST(Team, IsNeverLargerThanWhatOpenMpGives) {
  const int before = threads();
  set_threads(4096);
  EXPECT_EQ(threads(), std::min(4096, omp_get_thread_limit()));
  const int levels = omp_get_max_active_levels();
  omp_set_max_active_levels(0);
  set_threads(4);
  EXPECT_EQ(threads(), 1);
  omp_set_max_active_levels(levels);
  set_threads(before);
  EXPECT_EQ(threads(), before);
}

TEST(Team, IsLimitedByTheSwitchesOfTheThread) {
  const int before = threads();
  set_threads(4);
  {
    const SwitchScope three({.threads = 3});
    EXPECT_EQ(threads(), 3);
    std::atomic<int> most{0};
    parallel_chunks(64, [&](std::int64_t) { most = std::max(most.load(), omp_get_num_threads()); });
    EXPECT_EQ(most, 3);
    const ThreadsScope two(2);
    EXPECT_EQ(threads(), 2) << "the fewer of both";
    const SwitchScope more({.threads = 100});
    EXPECT_EQ(threads(), 2);
  }
  EXPECT_EQ(threads(), 4);
  set_threads(before);
}

TEST(Team, LeavesOpenMpAsTheHostProgramSetIt) {
  const int before = omp_get_max_threads(), pool = threads();
  omp_set_num_threads(3);
  set_threads(2);
  EXPECT_EQ(Tensor::full({1 << 18}, 2).to(DType::f64).to_doubles()[77], 2);
  EXPECT_EQ(omp_get_max_threads(), 3);
  set_threads(pool);
  omp_set_num_threads(before);
}

/// The threads of a pool of `count` that run i of so many chunks, all at the same time, so that none helps another.
template <class Loop>
std::vector<int> threads_of_chunks(int count, const Loop& loop) {
  const int before = threads();
  set_threads(count);
  std::vector<int> found(static_cast<std::size_t>(count), -1);
  std::atomic<int> arrived{0};
  loop(count, [&](std::int64_t i) {
    found[static_cast<std::size_t>(i)] = omp_get_thread_num();
    ++arrived;
    while (arrived < count) std::this_thread::yield();
  });
  set_threads(before);
  return found;
}

TEST(Chunks, OfEqualPartsOfLoopsRunOnTheSameThread) {
  const std::vector<int> wanted{0, 1, 2};
  EXPECT_EQ(threads_of_chunks(3, [](int count, const auto& f) { parallel_chunks(count, f); }), wanted);
  EXPECT_EQ(threads_of_chunks(3, [](int count, const auto& f) { parallel_chunks_backwards(count, f); }), wanted);
}

TEST(Chunks, GoBackwardsFromTheEndOfAThreadsPart) {
  const int before = threads();
  std::vector<std::int64_t> order;
  set_threads(1);
  parallel_chunks_backwards(4, [&](std::int64_t i) { order.push_back(i); });
  EXPECT_EQ(order, (std::vector<std::int64_t>{3, 2, 1, 0}));
  // The first of each of two threads wait for each other.
  set_threads(2);
  std::atomic<int> arrived{0};
  std::atomic<std::int64_t> first[2]{-1, -1};
  parallel_chunks_backwards(10, [&](std::int64_t i) {
    std::int64_t none = -1;
    if (!first[omp_get_thread_num()].compare_exchange_strong(none, i)) return;
    ++arrived;
    while (arrived < 2) std::this_thread::yield();
  });
  EXPECT_EQ(first[0], 4);
  EXPECT_EQ(first[1], 9);
  set_threads(before);
}

TEST(Chunks, RunOnceEachHoweverManyThreadsThereAre) {
  const int before = threads();
  for (const int pool : {1, 2, 5, 64})
    for (const std::int64_t count : {0, 1, 2, 63, 1000}) {
      set_threads(pool);
      std::vector<std::atomic<int>> runs(static_cast<std::size_t>(count));
      parallel_chunks(count, [&](std::int64_t i) { ++runs[static_cast<std::size_t>(i)]; });
      parallel_chunks_backwards(count, [&](std::int64_t i) { ++runs[static_cast<std::size_t>(i)]; });
      EXPECT_TRUE(std::all_of(runs.begin(), runs.end(), [](const auto& n) { return n == 2; })) << pool << ' ' << count;
    }
  set_threads(before);
}

TEST(Chunks, PassOnTheFirstException) {
  const int before = threads();
  set_threads(2);
  for (const std::int64_t thrower : {0, 7})
    EXPECT_THROW(parallel_chunks(8,
                                 [&](std::int64_t i) {
                                   if (i == thrower) throw UsageError("no");
                                 }),
                 UsageError);
  std::atomic<int> runs{0};
  parallel_chunks(8, [&](std::int64_t) { ++runs; });
  EXPECT_EQ(runs, 8);
  set_threads(before);
}

/// The exit code of a child that runs f(), or -1 where it does not end.
template <class F>
int exit_code_of_child(const F& f) {
  const pid_t child = fork();
  if (child == 0) _exit(f());
  for (int i = 0; i < 3000; ++i) {
    int status = 0;
    if (waitpid(child, &status, WNOHANG) == child) return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
  return -1;
}

// A child has the calling thread alone.
TEST(Team, IsOneThreadInTheChildOfAProcessThatHasUsedMore) {
  const int before = threads();
  set_threads(2);
  const auto sum_of_chunks = [] {
    std::atomic<std::int64_t> sum{0};
    parallel_chunks(100, [&](std::int64_t i) { sum += i; });
    return sum.load();
  };
  EXPECT_EQ(sum_of_chunks(), 4950);
  EXPECT_EQ(exit_code_of_child([&] {
              const bool one = threads() == 1 && sum_of_chunks() == 4950;
              set_threads(2);
              return one && threads() == 1 && sum_of_chunks() == 4950 ? 0 : 1;
            }),
            0);
  EXPECT_EQ(threads(), std::min(2, omp_get_thread_limit()));
  EXPECT_EQ(sum_of_chunks(), 4950);
  set_threads(before);
}

// The environment is read once, so that each of these needs a process of its own.
void report_threads(const char* name, const char* value) {
  setenv(name, value, 1);
  std::string text;
  try {
    text = std::to_string(threads());
  } catch (const ConfigError& error) {
    text = error.what();
  }
  std::fputs(text.c_str(), stderr);
  std::_Exit(0);
}

TEST(ThreadPoolDeathTest, TakesItsSizeFromTheEnvironment) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const std::string three = std::to_string(std::min(3, omp_get_thread_limit()));
  EXPECT_EXIT(report_threads("HEARTH_THREADS", "3"), testing::ExitedWithCode(0), "^" + three + "$");
  for (const char* wrong : {"", "0", "-1", "2x", "5000", "many"})
    EXPECT_EXIT(report_threads("HEARTH_THREADS", wrong), testing::ExitedWithCode(0), "from 1 to 4096") << wrong;
}

}  // namespace
}  // namespace hearth::cpu::parallel_test
