// SPDX-License-Identifier: Apache-2.0
// What a launch says that a device cannot do.
#include <gtest/gtest.h>

#include <vector>

#include "core/cuda/kernel.h"
#include "core/cuda/stream.h"
#include "core/error.h"
#include "core/tensor.h"
#include "tests/support/error_message.h"

namespace hearth::cuda {
namespace {

__global__ void do_nothing() {}

__global__ void sum_of_ends(int values, float* y) {
  HEARTH_SHARED(float, beside, [256]);
  float* const all = dynamic_shared<float>();
  beside[255] = 1;
  all[0] = 2;
  all[values - 1] = 4;
  y[0] = all[0] + all[values - 1] + beside[255];
}

TEST(CudaLaunch, SaysHowMuchSharedMemoryThereIs) {
  if (device_count() == 0) GTEST_SKIP() << why_no_device();
  const std::string message = test::error_message<DeviceError>([] {
    launch(stream_of(Device{DeviceType::cuda}), "nothing", {dim3(1), dim3(32), std::size_t{1} << 20}, do_nothing);
  });
  EXPECT_PRED2(test::contains, message, "kernel nothing needs 1048576 bytes of shared memory a block");
  EXPECT_PRED2(test::contains, message, "this device has ");
}

// Without asking a kernel has 48 KiB of static and dynamic memory together.
TEST(CudaLaunch, StaticSharedMemoryTakesNothingFromTheDynamic) {
  if (device_count() == 0) GTEST_SKIP() << why_no_device();
  const Device gpu{DeviceType::cuda};
  const Tensor y = Tensor::zeros({1}, DType::f32, gpu);
  for (const int values : {12 * 1024 - 255, 12 * 1024, 20 * 1024}) {
    y.fill_(0);
    launch(stream_of(gpu), "sum_of_ends", {dim3(1), dim3(1), static_cast<std::size_t>(values) * sizeof(float)},
           sum_of_ends, values, y.data<float>());
    EXPECT_EQ(y.to_doubles(), std::vector<double>{7});
  }
}

}  // namespace
}  // namespace hearth::cuda
