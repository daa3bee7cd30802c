// SPDX-License-Identifier: Apache-2.0
// Memory that runs out while a JSON value is copied. A sanitizer has an allocator of its own.
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
#include <gtest/gtest.h>

#include <cstdlib>
#include <new>
#include <string>
#include <vector>

#include "core/io/json_text.h"

namespace {
// Requests of this thread that are still served; all of them if negative.
thread_local long served = -1;
}  // namespace

// g++ 12 takes an inlined delete for free() of what new gave.
#pragma GCC diagnostic ignored "-Wmismatched-new-delete"

void* operator new(std::size_t size) {
  if (served == 0) throw std::bad_alloc();
  if (served > 0) --served;
  void* const memory = std::malloc(size == 0 ? 1 : size);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }

namespace hearth {
namespace {

// What a frame of the stack holds before it is used is not zero.
__attribute__((noinline)) void dirty_the_stack() {
  volatile unsigned char bytes[8192];
  for (unsigned i = 0; i < sizeof bytes; ++i) bytes[i] = 0x5a;
}

__attribute__((noinline)) bool is_copied(const Json& value) {
  try {
    const Json copy(value);
    served = -1;
    return copy == value;
  } catch (const std::bad_alloc&) {
    served = -1;
    return false;
  }
}

TEST(JsonMemory, ACopyThatFailsAnywhereLeavesNothing) {
  Json value = Json::object();
  for (const char* const key : {"a", "b", "c"})
    value.set(std::string(60, 'k') + key, Json::array_of(std::vector<std::string>{std::string(60, 'v'), "short"}));
  for (long requests = 0;; ++requests) {
    ASSERT_LT(requests, 1000);
    dirty_the_stack();
    served = requests;
    if (!is_copied(value)) continue;
    EXPECT_GT(requests, 6);
    break;
  }
}

}  // namespace
}  // namespace hearth
#endif
