// SPDX-License-Identifier: Apache-2.0
#include "core/cuda/library.h"

#include <gtest/gtest.h>

#include "core/cuda/emulation.h"

namespace hearth::cuda::library_test {
namespace {

TEST(CudaLibrary, OnTheEmulatedGpuRunsOnlyWhatWasMadeForIt) {
  const Library plain("the C library's mathematics", {"libm.so.6"});
  ASSERT_TRUE(plain.is_open()) << plain.why_absent();
  EXPECT_TRUE(plain.has("cos"));
  EXPECT_FALSE(plain.has("hearth_runs_on_the_emulated_gpu"));
  EXPECT_EQ(why_not_run(plain), why_no_library_runs());
  EXPECT_EQ(why_not_run(plain).empty(), !cuda::is_emulated());
}

TEST(CudaLibrary, WhatIsAbsentDoesNotRun) {
  Library absent("nothing", {"libhearth-has-no-such-file.so"});
  EXPECT_FALSE(absent.has("cos"));
  EXPECT_FALSE(why_not_run(absent).empty());
  EXPECT_NE(absent.why_absent().find("HEARTH_CUDA_LIBRARIES"), std::string::npos);
}

}  // namespace
}  // namespace hearth::cuda::library_test
