// SPDX-License-Identifier: Apache-2.0
// No signal handler starts on a thread that runs a library kernel, and every thread gets its own mask back.
#include "core/cpu/signals.h"

#include <gtest/gtest.h>
#include <omp.h>
#include <pthread.h>
#include <signal.h>
#include <ucontext.h>
#include <unistd.h>

#include <atomic>
#include <barrier>
#include <cstdint>
#include <thread>
#include <vector>

#include "core/cpu/parallel.h"
#include "ops/matmul/cpu/matmul_onednn.h"
#include "ops/onednn/onednn.h"

namespace hearth::cpu::signals_test {
namespace {

bool blocked(int signal) {
  sigset_t mask;
  pthread_sigmask(SIG_BLOCK, nullptr, &mask);
  return sigismember(&mask, signal) == 1;
}

std::atomic<int> calls{0};
std::atomic<int> calls_elsewhere{0};    // on another thread than the one that asked
std::atomic<int> calls_in_a_kernel{0};  // while the stack pointer was not in that thread's stack
pthread_t asking;
std::uintptr_t stack_begin, stack_end;

void count(int, siginfo_t*, void* context) {
  ++calls;
#if defined(__x86_64__)
  const auto at = static_cast<std::uintptr_t>(static_cast<ucontext_t*>(context)->uc_mcontext.gregs[REG_RSP]);
  if (pthread_equal(pthread_self(), asking) != 0 && (at < stack_begin || at >= stack_end)) ++calls_in_a_kernel;
#else
  static_cast<void>(context);
#endif
  if (pthread_equal(pthread_self(), asking) == 0) ++calls_elsewhere;
}

/// Counts SIGUSR1, as a program would that knows nothing of alternate stacks.
class Handler {
 public:
  Handler() {
    calls = calls_elsewhere = calls_in_a_kernel = 0;
    asking = pthread_self();
    pthread_attr_t attributes;
    void* begin = nullptr;
    std::size_t bytes = 0;
    pthread_getattr_np(asking, &attributes);
    pthread_attr_getstack(&attributes, &begin, &bytes);
    pthread_attr_destroy(&attributes);
    stack_begin = reinterpret_cast<std::uintptr_t>(begin);
    stack_end = stack_begin + bytes;
    struct sigaction action {};
    action.sa_sigaction = count;
    action.sa_flags = SA_RESTART | SA_SIGINFO;
    sigaction(SIGUSR1, &action, &before_);
  }
  ~Handler() { sigaction(SIGUSR1, &before_, nullptr); }
  Handler(const Handler&) = delete;
  Handler& operator=(const Handler&) = delete;

 private:
  struct sigaction before_ {};
};

TEST(SignalBlock, LetsSignalsWaitForTheOutermostToEnd) {
  const Handler handler;
  {
    const SignalBlock outer;
    {
      const SignalBlock inner;
      raise(SIGUSR1);
    }
    EXPECT_EQ(calls, 0);
  }
  EXPECT_EQ(calls, 1);
}

TEST(SignalBlock, LeavesFaultsAlone) {
  const SignalBlock none;
  for (const int fault : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGSYS, SIGABRT}) EXPECT_FALSE(blocked(fault));
  for (const int other : {SIGINT, SIGTERM, SIGALRM, SIGPROF, SIGCHLD, SIGRTMIN, SIGRTMAX}) EXPECT_TRUE(blocked(other));
}

TEST(SignalBlock, PutsBackTheMaskOfTheThread) {
  std::thread([] {
    sigset_t one;
    sigemptyset(&one);
    sigaddset(&one, SIGUSR2);
    pthread_sigmask(SIG_SETMASK, &one, nullptr);
    { const SignalBlock none; }
    EXPECT_TRUE(blocked(SIGUSR2));
    EXPECT_FALSE(blocked(SIGUSR1));
    block_signals_for_good();
    { const SignalBlock none; }
    EXPECT_TRUE(blocked(SIGUSR1));
    EXPECT_FALSE(blocked(SIGSEGV));
  }).join();
}

TEST(Team, TakesNoSignalsButOnTheThreadThatLeadsIt) {
  if (omp_get_thread_limit() < 3) GTEST_SKIP() << "no thread pool to be had";
  // On a thread of its own, which has no thread pool yet.
  std::thread([] {
    const int before = threads();
    set_threads(3);
    std::atomic<int> closed{0};
    std::barrier all(3);
    parallel_chunks(3, [&](std::int64_t) {
      all.arrive_and_wait();
      closed += blocked(SIGUSR1) ? 1 : 0;
    });
    EXPECT_EQ(closed, 2);
    EXPECT_FALSE(blocked(SIGUSR1));
    set_threads(before);
  }).join();
}

TEST(Team, OfTheHostProgramTakesNoSignalsInLibraryCalls) {
  if (omp_get_thread_limit() < 3) GTEST_SKIP() << "no thread pool to be had";
  std::thread([] {
    std::atomic<int> closed{0};
    const auto count_closed = [&] {
#pragma omp parallel num_threads(3)
      closed += blocked(SIGUSR1) ? 1 : 0;
      return closed.exchange(0);
    };
    ASSERT_EQ(count_closed(), 0);
    block_signals_in_thread_pool(3);
    EXPECT_EQ(count_closed(), 2);
    EXPECT_FALSE(blocked(SIGUSR1));
  }).join();
}

/// Sends SIGUSR1 to the process all the time. Other tests' threads of the library have it blocked.
class Storm {
 public:
  Storm() : sender_([this] { send(); }) {}
  ~Storm() {
    over_ = true;
    sender_.join();
  }
  Storm(const Storm&) = delete;
  Storm& operator=(const Storm&) = delete;

 private:
  void send() {
    block_signals_for_good();
    while (!over_) {
      kill(getpid(), SIGUSR1);
      std::this_thread::sleep_for(std::chrono::microseconds(20));
    }
  }
  std::atomic<bool> over_{false};
  std::thread sender_;
};

// Sums long enough that oneDNN copies an operand, into the buffer that is its stack as well.
void multiply(const MatmulProblem& problem, const std::vector<float>& values, std::vector<float>& result) {
  dnn::matmul(problem, values.data(), values.data(), nullptr, result.data());
}

class SignalStorm : public testing::TestWithParam<int> {
  void SetUp() override {
    if (!dnn::available()) GTEST_SKIP() << "no oneDNN";
    set_threads(GetParam());
  }
  void TearDown() override { set_threads(before_); }
  const int before_ = threads();
};

TEST_P(SignalStorm, FindsNoThreadInAKernel) {
  const Handler handler;
  const MatmulProblem problem{.m = 256, .n = 64, .k = 1024, .transpose_a = true};
  const std::vector<float> values(256 * 1024, 1);
  std::vector<float> result(256 * 64);
  multiply(problem, values, result);
  const Storm storm;
  while (calls < 300) multiply(problem, values, result);
  EXPECT_EQ(calls_in_a_kernel, 0);
  EXPECT_EQ(calls_elsewhere, 0);
  EXPECT_EQ(result, std::vector<float>(256 * 64, 1024));
}

INSTANTIATE_TEST_SUITE_P(Threads, SignalStorm, testing::Values(1, 2));

}  // namespace
}  // namespace hearth::cpu::signals_test
