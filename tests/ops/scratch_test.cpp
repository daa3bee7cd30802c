// SPDX-License-Identifier: Apache-2.0
#include "ops/scratch.h"

#include <gtest/gtest.h>

#include <cstdlib>

#include "core/profiler.h"
#include "core/tensor.h"

namespace hearth::scratch_test {
namespace {

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

TEST(ScratchDeathTest, StaticObjectsMayStillCompute) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(end_with_static_objects(), testing::ExitedWithCode(0), "");
}

}  // namespace
}  // namespace hearth::scratch_test
