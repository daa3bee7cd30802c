// SPDX-License-Identifier: Apache-2.0
#include "core/thread_object.h"

#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <thread>

namespace hearth::thread_object_test {
namespace {

struct Counted {
  static inline std::atomic<int> alive{0};
  int value = 1;
  Counted() { ++alive; }
  ~Counted() {
    value = -1;
    --alive;
  }
};

TEST(ThreadObject, BelongsToOneThreadAndEndsWithIt) {
  std::thread([] {
    detail::thread_object<Counted>().value = 7;
    std::thread([] { EXPECT_EQ(detail::thread_object<Counted>().value, 1); }).join();
    EXPECT_EQ(detail::thread_object<Counted>().value, 7);
    EXPECT_EQ(Counted::alive, 1);
  }).join();
  EXPECT_EQ(Counted::alive, 0);
}

/// Asks when the thread's object has ended: what was made first ends last.
struct Late {
  static inline std::unique_ptr<Counted> found;
  ~Late() { found.reset(&detail::thread_object<Counted>()); }
};

TEST(ThreadObject, WhoAsksBehindItsEndGetsANewOne) {
  std::thread([] {
    thread_local Late late;
    EXPECT_EQ(Late::found, nullptr) << &late;
    detail::thread_object<Counted>().value = 7;
  }).join();
  EXPECT_EQ(Counted::alive, 1);
  EXPECT_EQ(Late::found->value, 1);
  Late::found.reset();
}

}  // namespace
}  // namespace hearth::thread_object_test
