// SPDX-License-Identifier: Apache-2.0
#include "tests/data/memory_requests.h"

#include <cstdlib>
#include <new>

namespace {
thread_local long requests_of_thread = 0;
}  // namespace

long hearth::test::memory_requests() { return requests_of_thread; }

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
// g++ 12 takes an inlined delete for free() of what new gave.
#pragma GCC diagnostic ignored "-Wmismatched-new-delete"

void* operator new(std::size_t size) {
  ++requests_of_thread;
  void* const memory = std::malloc(size == 0 ? 1 : size);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }
#endif
