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

#include "core/cpu/cores.h"
#include "core/cpu/reserve.h"
#include "core/cpu/signals.h"
#include "core/cpu/stream.h"
#include "core/error.h"

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

std::atomic<bool> deterministic_mode{false};

}  // namespace

int threads() { return lost_threads() ? 1 : pool_size().load(std::memory_order_relaxed); }

void set_threads(int count) {
  HEARTH_CHECK(UsageError, count >= 1, "set_threads: ", count, " threads; at least 1 is needed");
  pool_size().store(at_most_openmp_gives(count), std::memory_order_relaxed);
}

bool is_in_parallel() { return omp_in_parallel() != 0; }

bool deterministic() { return deterministic_mode.load(std::memory_order_relaxed); }
void set_deterministic(bool on) { deterministic_mode.store(on, std::memory_order_relaxed); }

namespace detail {

void run_chunks(std::int64_t count, ChunkBody body, const void* context) {
  if (count <= 0) return;
  const int pool = threads();
  if (count == 1 || pool == 1 || omp_in_parallel()) {
    for (std::int64_t i = 0; i < count; ++i) body(context, i);
    return;
  }
  reserve_threads(pool);
  std::exception_ptr failure;
  std::mutex failure_mutex;
#pragma omp parallel num_threads(pool)
  {
    // Before any of them runs a library kernel, here or in the library's own parallel regions.
    if (omp_get_thread_num() != 0) block_signals_for_good();
#pragma omp for schedule(dynamic, 1) nowait
    for (std::int64_t i = 0; i < count; ++i) {
      try {
        body(context, i);
      } catch (...) {
        const std::lock_guard lock(failure_mutex);
        if (!failure) failure = std::current_exception();
      }
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
