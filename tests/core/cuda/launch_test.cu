// SPDX-License-Identifier: Apache-2.0
// What a launch says that a device cannot do.
#include <gtest/gtest.h>

#include "hearth/core/cuda/kernel.h"
#include "hearth/core/cuda/stream.h"
#include "hearth/core/error.h"
#include "support/error_message.h"

namespace hearth::cuda {
namespace {

__global__ void do_nothing() {}

TEST(CudaLaunch, SaysHowMuchSharedMemoryThereIs) {
  if (device_count() == 0) GTEST_SKIP() << why_no_device();
  const std::string message = test::error_message<DeviceError>([] {
    launch(stream_of(Device{DeviceType::cuda}), "nothing", {dim3(1), dim3(32), std::size_t{1} << 20}, do_nothing);
  });
  EXPECT_PRED2(test::contains, message, "kernel nothing needs 1048576 bytes of shared memory a block");
  EXPECT_PRED2(test::contains, message, "this device has ");
}

}  // namespace
}  // namespace hearth::cuda
