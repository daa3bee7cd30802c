// SPDX-License-Identifier: Apache-2.0
// With two devices, the library is asked for the one that the tensors are on.
#include <functional>

#include "ops/attention/attention.h"
#include "ops/conv/conv2d.h"
#include "ops/dispatch/candidates.h"
#include "tests/reference_libraries/cudnn/tests/reference.h"

namespace hearth::test {
namespace {

constexpr Device first{DeviceType::cuda, 0}, second{DeviceType::cuda, 1};

/// What `op` asks the library on each device, the second one before the first.
void expect_a_plan_each(const char* name, const std::function<Tensor(Device)>& op) {
  const ForceCandidate force(name, "cudnn");
  const auto questions = [&](Device device) {
    const std::int64_t before = controls().questions;
    EXPECT_EQ(op(device).device(), device);
    return controls().questions - before;
  };
  const std::int64_t of_the_second = questions(second);
  EXPECT_GT(of_the_second, 0) << name;
  EXPECT_EQ(questions(first), of_the_second) << name;
}

using CudaReferenceDnnOnTwoDevices = CudaReferenceDnn;

TEST_F(CudaReferenceDnnOnTwoDevices, MakesPlansForThatOfTheTensors) {
  if (device_count(DeviceType::cuda) < 2) GTEST_SKIP() << "there is one device (HEARTH_EMULATE_DEVICES)";
  const auto ones = [](const Shape& shape, DType dtype, Device device) {
    return Tensor::full(shape, 1, dtype, device);
  };
  expect_a_plan_each("conv2d", [&](Device device) {
    return conv2d(ones({2, 11, 7, 8}, DType::f32, device), ones({16, 3, 3, 8}, DType::f32, device));
  });
  expect_a_plan_each("attention", [&](Device device) {
    const Tensor x = ones({1, 24, 2, 16}, DType::f16, device);
    return attention(x, x, x);
  });
}

}  // namespace
}  // namespace hearth::test
