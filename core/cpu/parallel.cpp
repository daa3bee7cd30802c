// SPDX-License-Identifier: Apache-2.0
#include "core/cpu/parallel.h"

#include <omp.h>

#include <algorithm>
#include <atomic>
#include <charconv>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <mutex>
#include <vector>

#include "core/cpu/cores.h"
#include "core/cpu/reserve.h"
#include "core/cpu/signals.h"
#include "core/cpu/stream.h"
#include "core/error.h"
#include "core/switches.h"

namespace hearth::cpu {
namespace {

// The library hangs where OpenMP gives a call fewer threads than the call's plan counts on.
int at_most_openmp_gives(int count) {
  return omp_get_max_active_levels() < 1 ? 1 : std::min(count, omp_get_thread_limit());
}

int initial_threads() {
  const char* text = std::getenv("HEARTH_THREADS");
  if (!text) return available_cores();
  int count = 0;
  const char* const end = text + std::strlen(text);
  const auto [stop, error] = std::from_chars(text, end, count);
  HEARTH_CHECK(ConfigError, error == std::errc{} && stop == end && count >= 1 && count <= 4096, "HEARTH_THREADS is \"",
               text, "\"; it must be a number from 1 to 4096");
  return count;
}

std::atomic<int>& pool_size() {
  static std::atomic<int> size = at_most_openmp_gives(initial_threads());
  return size;
}

thread_local int most_of_thread = 0;  // 0: as many as the pool has

/// How many of a thread's chunks have been taken, by it or by others, on a cache line of its own.
struct alignas(64) Taken {
  std::atomic<std::int64_t> chunks{0};
};

}  // namespace

int threads() {
  int count = lost_threads() ? 1 : pool_size().load(std::memory_order_relaxed);
  for (const int most : {most_of_thread, switches().threads})
    if (most > 0) count = std::min(count, most);
  return count;
}

void set_threads(int count) {
  HEARTH_CHECK(UsageError, count >= 1, "set_threads: ", count, " threads; at least 1 is needed");
  pool_size().store(at_most_openmp_gives(count), std::memory_order_relaxed);
}

ThreadsScope::ThreadsScope(int most) : before_(most_of_thread) {
  HEARTH_CHECK(UsageError, most >= 1, "threads: at most ", most, "; give 1 or more");
  most_of_thread = most;
}
ThreadsScope::~ThreadsScope() { most_of_thread = before_; }

bool is_in_parallel() { return omp_in_parallel() != 0; }

bool deterministic() { return switches().deterministic; }
void set_deterministic(bool on) { hearth::detail::set_deterministic(on); }

namespace detail {

void run_chunks(std::int64_t count, ChunkOrder order, ChunkBody body, const void* context) {
  if (count <= 0) return;
  const int pool = threads();
  // Part t of `parts`. Others look before they take: most often nothing is left.
  const auto run_part = [&](int t, int parts, std::atomic<std::int64_t>& taken) {
    const std::int64_t begin = count * t / parts, end = count * (t + 1) / parts, size = end - begin;
    while (size > 0 && taken.load(std::memory_order_relaxed) < size) {
      const std::int64_t i = taken.fetch_add(1, std::memory_order_relaxed);
      if (i < size) body(context, order == ChunkOrder::forwards ? begin + i : end - 1 - i);
    }
  };
  if (count == 1 || pool == 1 || omp_in_parallel()) {
    std::atomic<std::int64_t> taken{0};
    return run_part(0, 1, taken);
  }
  reserve_threads(pool);
  // The next call takes the same memory.
  thread_local std::vector<Taken> memory;
  if (memory.size() < static_cast<std::size_t>(pool)) memory = std::vector<Taken>(static_cast<std::size_t>(pool));
  Taken* const taken = memory.data();
  for (int t = 0; t < pool; ++t) taken[t].chunks.store(0, std::memory_order_relaxed);
  std::exception_ptr failure;
  std::mutex failure_mutex;
  const Switches callers = switches();
#pragma omp parallel num_threads(pool)
  {
    const int own = omp_get_thread_num();
    // Before any of them runs a library kernel, here or in the library's own parallel regions.
    if (own != 0) block_signals_for_good();
    const SwitchScope as_the_caller(callers);
    try {
      for (int i = 0; i < pool; ++i) {
        const int t = (own + i) % pool;
        run_part(t, pool, taken[t].chunks);
      }
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
