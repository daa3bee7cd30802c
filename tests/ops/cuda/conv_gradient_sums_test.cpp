// SPDX-License-Identifier: Apache-2.0
// The gradient of a convolution's images where these have another reader, as in a residual block: the convolution adds
// to what the other has left.
#include <gtest/gtest.h>

#include <vector>

#include "autograd/backward.h"
#include "autograd/grad_state.h"
#include "core/cuda/counters.h"
#include "core/random.h"
#include "ops/conv/conv2d.h"
#include "ops/dispatch/candidates.h"
#include "ops/pointwise/binary.h"
#include "ops/pointwise/pointwise.h"
#include "tests/support/op_test.h"

namespace hearth::test::conv_gradient_sums_test {
namespace {

constexpr Device gpu{DeviceType::cuda, 0};

class CudaConvGradientSums : public testing::Test {
 protected:
  void SetUp() override {
    if (device_count(DeviceType::cuda) == 0) GTEST_SKIP() << "there is no CUDA device";
  }
};

Tensor numbers(const Shape& shape, std::uint64_t stream, DType dtype, Device device) {
  Random random(43, stream);
  std::vector<double> values(static_cast<std::size_t>(shape.size()));
  for (double& value : values) value = 0.25 * random.normal();
  return Tensor::of<double>(shape, values).to(dtype).to(device);
}

struct Found {
  Tensor gradient;
  std::int64_t launches = 0;  ///< of the backward pass
};

/// `readers` of x: the convolution, and perhaps one whose gradient comes first.
Found gradient_of(int readers, std::int64_t channels, DType dtype, Device device) {
  const Tensor from = requires_grad(numbers({2, 6, 5, channels}, 1, dtype, device)),
               w = numbers({channels, 3, 3, channels}, 2, dtype, device);
  const Tensor x = mul(from, 2.0), convolved = conv2d(x, w, {.padding = 1});
  const Tensor y = readers == 1 ? convolved : add(convolved, relu(x));
  const std::int64_t before = device.is_cpu() ? 0 : cuda::counters().launches;
  backward(y, numbers(y.shape(), 3, dtype, device));
  return {grad_of(from), device.is_cpu() ? 0 : cuda::counters().launches - before};
}

TEST_F(CudaConvGradientSums, AreThoseOfTheTape) {
  struct Case {
    const char* by;
    DType dtype;
    std::int64_t channels;
  };
  for (const Case& c : {Case{"portable", DType::f32, 8}, Case{"portable", DType::bf16, 8}, Case{"mma", DType::bf16, 8},
                        Case{"mma", DType::f16, 64}}) {
    const Tensor expected = gradient_of(2, c.channels, DType::f64, Device{}).gradient;
    const ForceCandidate force("conv2d", c.by);
    expect_close(gradient_of(2, c.channels, c.dtype, gpu).gradient, expected, c.dtype == DType::f32 ? 1e-5 : 3e-2);
  }
}

TEST_F(CudaConvGradientSums, CostNoLaunch) {
  const ForceCandidate force("conv2d", "mma");
  (void)gradient_of(2, 8, DType::bf16, gpu);
  const std::int64_t one = gradient_of(1, 8, DType::bf16, gpu).launches,
                     two = gradient_of(2, 8, DType::bf16, gpu).launches;
  EXPECT_EQ(two - one, 1) << "the gradient of the ReLU";
}

}  // namespace
}  // namespace hearth::test::conv_gradient_sums_test
