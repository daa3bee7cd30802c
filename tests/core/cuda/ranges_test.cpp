// SPDX-License-Identifier: Apache-2.0
// The ranges that NVIDIA's profilers get to see.
#include "core/cuda/ranges.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "core/origin.h"
#include "tests/support/nvtx_sink.h"

namespace hearth {
namespace {

TEST(CudaRanges, NameOpAndLayerAndNest) {
  const bool before = cuda::marks_ranges();
  cuda::mark_ranges(true);
  (void)test::NvtxSink::instance().take();
  {
    const OriginScope layer = OriginScope::of_layer("layer1.0.conv1");
    const OriginScope op = OriginScope::of_op("conv2d");
    cuda::mark_ranges(false);
    const OriginScope quiet = OriginScope::of_op("not marked");
  }
  EXPECT_EQ(test::NvtxSink::instance().take(),
            (std::vector<std::string>{"no op of layer1.0.conv1", "conv2d of layer1.0.conv1", "end", "end"}));
  cuda::mark_ranges(before);
}

}  // namespace
}  // namespace hearth
