// SPDX-License-Identifier: Apache-2.0
// What the race checker (HEARTH_EMULATE_CHECK) is told beyond the loads and stores that the compiler reports to it.
// In builds without it everything here is nothing.
#pragma once

#include <cstddef>

#include "tests/emulated_gpu/engine.h"

#if !defined(HEARTH_EMULATE_CHECK)
#define HEARTH_EMULATE_CHECK 0
#endif

namespace hearth::cuda::emulate {

/// An asynchronous copy writes from its beginning to its end; nobody may touch its bytes between.
enum class Access { read, write, atomic, copy_begin, copy_end };

#if HEARTH_EMULATE_CHECK
/// The running block has been counted at `counter`; `last`: it was told that it completes the count, and goes on behind
/// all that were.
void note_arrival(const void* counter, bool last);

/// Whether the code that runs is a kernel's. Loads and stores of the engine itself, and of the host, are not looked at.
inline HEARTH_EMULATE_THREAD_LOCAL bool in_kernel = false;

/// The calling kernel thread touches these bytes. Does not return if it must not.
void note_access(const void* p, std::size_t bytes, Access access, const void* site);

/// While one lives, kernel code is not looked at.
class Unwatched {
 public:
  Unwatched() : before_(in_kernel) { in_kernel = false; }
  ~Unwatched() { in_kernel = before_; }
  Unwatched(const Unwatched&) = delete;
  Unwatched& operator=(const Unwatched&) = delete;

 private:
  bool before_;
};
class Watched {
 public:
  Watched() { in_kernel = true; }
  ~Watched() { in_kernel = false; }
  Watched(const Watched&) = delete;
  Watched& operator=(const Watched&) = delete;
};
/// Around the plain load and store that stand for an atomic operation.
class AtomicAccess {
 public:
  [[gnu::noinline]] AtomicAccess(const void* p, std::size_t bytes) {
    if (in_kernel_before_) note_access(p, bytes, Access::atomic, __builtin_return_address(0));
  }

 private:
  bool in_kernel_before_ = in_kernel;
  Unwatched unwatched_;
};
#else
inline void note_arrival(const void*, bool) {}
inline void note_access(const void*, std::size_t, Access, const void*) {}
struct Unwatched {
  Unwatched() {}
};
struct Watched {
  Watched() {}
};
struct AtomicAccess {
  AtomicAccess(const void*, std::size_t) {}
};
#endif

}  // namespace hearth::cuda::emulate
