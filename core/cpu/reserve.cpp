// SPDX-License-Identifier: Apache-2.0
#include "core/cpu/reserve.h"

#include <pthread.h>
#include <sys/mman.h>
#include <sys/resource.h>

#include <atomic>
#include <fstream>
#include <mutex>
#include <system_error>
#include <vector>

#include "core/error.h"

namespace hearth::cpu {
namespace {

bool may_be_refused() {
  for (const auto resource : {RLIMIT_AS, RLIMIT_DATA})
    if (rlimit limit{}; getrlimit(resource, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY) return true;
  std::ifstream policy("/proc/sys/vm/overcommit_memory");
  return policy.get() == '2';
}

void* wait_for_release(void* gate) {
  const std::lock_guard lock(*static_cast<std::mutex*>(gate));
  return nullptr;
}

/// How many threads of `count` the system starts side by side; `error` says why no more. They end before the return.
int start_threads(int count, int& error) {
  std::vector<pthread_t> started;
  started.reserve(static_cast<std::size_t>(count));
  std::mutex gate;
  {
    const std::lock_guard closed(gate);
    for (pthread_t thread{}; static_cast<int>(started.size()) < count; started.push_back(thread))
      if ((error = pthread_create(&thread, nullptr, wait_for_release, &gate)) != 0) break;
  }
  for (const pthread_t thread : started) pthread_join(thread, nullptr);
  return static_cast<int>(started.size());
}

std::atomic<bool> is_child_without_threads{false};

}  // namespace

void reserve_for_library(const char* library, std::size_t bytes) {
  static const bool asks = may_be_refused();
  if (!asks) return;
  void* const region = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  HEARTH_CHECK(OutOfMemory, region != MAP_FAILED, "out of memory: the system refuses ", bytes, " bytes that a call of ",
               library, " may take; use a smaller batch, or raise the process's limit");
  munmap(region, bytes);
}

void reserve_threads(int count) {
  static std::atomic<int> possible{1};
  if (count <= possible.load(std::memory_order_relaxed)) return;
  int error = 0;
  const int pool = start_threads(count - 1, error) + 1;
  HEARTH_CHECK(OutOfMemory, pool == count, "the system starts ", pool, " of ", count, " threads (",
               std::system_category().message(error), "); set HEARTH_THREADS to ", pool, " or fewer");
  static const int registered = pthread_atfork(nullptr, nullptr, [] { is_child_without_threads = true; });
  HEARTH_CHECK(OutOfMemory, registered == 0, "pthread_atfork: ", std::system_category().message(registered));
  possible.store(count, std::memory_order_relaxed);
}

bool lost_threads() noexcept { return is_child_without_threads.load(std::memory_order_relaxed); }

}  // namespace hearth::cpu
