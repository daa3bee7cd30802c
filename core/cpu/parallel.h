// SPDX-License-Identifier: Apache-2.0
// The one thread pool of the process. All kernels and the libraries below them share it.
// Results must not depend on the thread pool's size: cut work by problem shape, combine partial results in index order.
#pragma once

#include <cstdint>
#include <type_traits>

#include "core/export.h"

namespace hearth::cpu {

/// Size of the thread pool, or of the calling thread's part of it (ThreadsScope, Switches::threads): HEARTH_THREADS if
/// set, else the number of cores this process may use. Never more than OpenMP gives (OMP_THREAD_LIMIT,
/// OMP_MAX_ACTIVE_LEVELS).
HEARTH_API int threads();
/// Sets the size of the thread pool (>= 1), as far as OpenMP gives it; UsageError otherwise.
HEARTH_API void set_threads(int count);

/// While it lives, the calling thread computes with at most so many threads of the pool (>= 1, UsageError): for callers
/// that compute side by side.
class HEARTH_API ThreadsScope {
 public:
  explicit ThreadsScope(int most);
  ~ThreadsScope();
  ThreadsScope(const ThreadsScope&) = delete;
  ThreadsScope& operator=(const ThreadsScope&) = delete;

 private:
  int before_;
};

/// Whether the caller runs in a region that OpenMP spreads over a thread pool.
HEARTH_API bool is_in_parallel();

/// True while deterministic mode is on: library kernels whose bits depend on the thread pool's size are run in fixed
/// shares. Setting it changes it for all threads without a SwitchScope.
HEARTH_API bool deterministic();
HEARTH_API void set_deterministic(bool on);

namespace detail {
enum class ChunkOrder { forwards, backwards };
using ChunkBody = void (*)(const void* context, std::int64_t index);
/// Runs body(context, 0..count-1), each index once unless one throws, spread over the thread pool. The first exception
/// is rethrown here.
HEARTH_API void run_chunks(std::int64_t count, ChunkOrder order, ChunkBody body, const void* context);

template <class F>
void run_chunks_of(std::int64_t count, ChunkOrder order, const F& f) {
  run_chunks(
      count, order, [](const void* context, std::int64_t index) { (*static_cast<const F*>(context))(index); }, &f);
}
}  // namespace detail

/// f(i) for i in [0, count), spread over the thread pool. For few, large pieces of work.
/// Each thread begins with its part of the indices, in order, and then helps others. So loops that cut tensors in the
/// same order find much of what the loop before has touched in the thread's own caches.
template <class F>
void parallel_chunks(std::int64_t count, const F& f) {
  detail::run_chunks_of(count, detail::ChunkOrder::forwards, f);
}

/// The same, each thread from the end of its part: after a loop that has touched the same memory, whose last part is
/// still in the caches.
template <class F>
void parallel_chunks_backwards(std::int64_t count, const F& f) {
  detail::run_chunks_of(count, detail::ChunkOrder::backwards, f);
}

/// f(begin, end) over [0, n) in pieces of `grain` (the last may be shorter), spread over the thread pool.
/// The pieces depend on n and grain only.
template <class F>
void parallel_for(std::int64_t n, std::int64_t grain, const F& f) {
  if (n <= 0) return;
  if (n <= grain) {
    f(std::int64_t{0}, n);
    return;
  }
  const std::int64_t count = (n + grain - 1) / grain;
  parallel_chunks(count, [&](std::int64_t i) {
    const std::int64_t begin = i * grain;
    f(begin, begin + grain < n ? begin + grain : n);
  });
}

}  // namespace hearth::cpu
