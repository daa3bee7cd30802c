// SPDX-License-Identifier: Apache-2.0
#include "hearth/core/cpu/parallel.h"

#include <omp.h>
#include <sched.h>

#include <atomic>
#include <cstdlib>
#include <exception>
#include <mutex>

#include "hearth/core/cpu/stream.h"
#include "hearth/core/error.h"

namespace hearth::cpu {
namespace {

int initial_threads() {
  if (const char* text = std::getenv("HEARTH_THREADS")) {
    const int count = std::atoi(text);
    HEARTH_CHECK(ConfigError, count >= 1 && count <= 4096, "HEARTH_THREADS is \"", text,
                 "\"; it must be a number from 1 to 4096");
    return count;
  }
  cpu_set_t allowed;
  CPU_ZERO(&allowed);
  if (sched_getaffinity(0, sizeof(allowed), &allowed) == 0) return CPU_COUNT(&allowed);
  return 1;
}

std::atomic<int>& team_size() {
  static std::atomic<int> size = [] {
    const int count = initial_threads();
    omp_set_num_threads(count);
    return count;
  }();
  return size;
}

std::atomic<bool> exact_mode{false};

}  // namespace

int threads() { return team_size().load(std::memory_order_relaxed); }

void set_threads(int count) {
  HEARTH_CHECK(UsageError, count >= 1, "set_threads: ", count, " threads; at least 1 is needed");
  team_size().store(count, std::memory_order_relaxed);
  omp_set_num_threads(count);
}

bool deterministic() { return exact_mode.load(std::memory_order_relaxed); }
void set_deterministic(bool on) { exact_mode.store(on, std::memory_order_relaxed); }

namespace detail {

void run_chunks(std::int64_t count, ChunkBody body, const void* context) {
  if (count <= 0) return;
  const int team = threads();
  if (count == 1 || team == 1 || omp_in_parallel()) {
    for (std::int64_t i = 0; i < count; ++i) body(context, i);
    return;
  }
  std::exception_ptr failure;
  std::mutex failure_mutex;
#pragma omp parallel for schedule(dynamic, 1) num_threads(team)
  for (std::int64_t i = 0; i < count; ++i) {
    try {
      body(context, i);
    } catch (...) {
      const std::lock_guard lock(failure_mutex);
      if (!failure) failure = std::current_exception();
    }
  }
  if (failure) std::rethrow_exception(failure);
}

}  // namespace detail

Stream& stream_of(Device) {
  static Stream stream;
  return stream;
}

}  // namespace hearth::cpu
