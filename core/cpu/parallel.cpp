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

/// The chunks [begin, end) of one thread, on a cache line of their own. Other threads take of them when they have none
/// left.
struct alignas(64) Share {
  std::int64_t begin = 0, end = 0;
  std::atomic<std::int64_t> taken{0};
};

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

void run_chunks(std::int64_t count, ChunkOrder order, ChunkBody body, const void* context) {
  if (count <= 0) return;
  const int pool = threads();
  const auto run_share = [&](Share& share) {
    for (std::int64_t i; (i = share.taken.fetch_add(1, std::memory_order_relaxed)) < share.end - share.begin;)
      body(context, order == ChunkOrder::forwards ? share.begin + i : share.end - 1 - i);
  };
  if (count == 1 || pool == 1 || omp_in_parallel()) {
    Share all{.end = count};
    return run_share(all);
  }
  reserve_threads(pool);
  // The next call takes the same memory.
  thread_local std::vector<Share> memory;
  if (memory.size() < static_cast<std::size_t>(pool)) memory = std::vector<Share>(static_cast<std::size_t>(pool));
  Share* const shares = memory.data();
  for (int t = 0; t < pool; ++t) {
    shares[t].begin = count * t / pool;
    shares[t].end = count * (t + 1) / pool;
    shares[t].taken.store(0, std::memory_order_relaxed);
  }
  std::exception_ptr failure;
  std::mutex failure_mutex;
#pragma omp parallel num_threads(pool)
  {
    const int own = omp_get_thread_num();
    // Before any of them runs a library kernel, here or in the library's own parallel regions.
    if (own != 0) block_signals_for_good();
    try {
      for (int t = 0; t < pool; ++t) run_share(shares[(own + t) % pool]);
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
