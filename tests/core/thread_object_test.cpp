// SPDX-License-Identifier: Apache-2.0
#include "core/thread_object.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <memory>
#include <thread>

#include "core/cpu/scratch.h"
#include "core/profiler.h"
#include "core/tensor.h"

namespace hearth {
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

/// What a host program may do in the destructor of a static object. The sanitizers see what a plain build may survive.
struct AtExit {
  ~AtExit() {
    const profiler::Scope scope("at exit");
    cpu::Scratch scratch;
    float* const values = scratch.take<float>(1000);
    values[999] = 1;
    const Tensor x = Tensor::full({100}, 2);
    const bool works = cpu::Scratch::held_bytes() > 0 && x.to(DType::f64).to_doubles()[99] == 2;
    std::_Exit(works ? 0 : 1);
  }
};

void end_with_static_objects() {
  profiler::start();
  static const AtExit last{};
  {
    const profiler::Scope scope("before");
    cpu::Scratch scratch;
    scratch.take<float>(1000)[0] = 1;
  }
  std::exit(2);
}

TEST(ThreadObjectDeathTest, StaticObjectsMayStillCompute) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(end_with_static_objects(), testing::ExitedWithCode(0), "");
}

}  // namespace
}  // namespace hearth
