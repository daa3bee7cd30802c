// SPDX-License-Identifier: Apache-2.0
// How many kernels a fully connected layer costs on a device by Hearth's native kernels.
#include <gtest/gtest.h>

#include "autograd/backward.h"
#include "autograd/grad_mode.h"
#include "autograd/grad_state.h"
#include "core/cuda/counters.h"
#include "ops/dispatch/candidates.h"
#include "ops/linear/linear.h"
#include "tests/support/op_test.h"

namespace hearth::test::linear_launches_test {
namespace {

constexpr Device gpu{DeviceType::cuda};
constexpr Activation all_activations[] = {Activation::none, Activation::relu, Activation::gelu, Activation::gelu_tanh,
                                          Activation::silu};

class CudaLinearLaunches : public testing::Test {
 protected:
  void SetUp() override {
    if (device_count(DeviceType::cuda) == 0) GTEST_SKIP() << "there is no CUDA device";
  }
  template <class F>
  static std::int64_t launches(F&& f) {
    const cuda::Counters before = cuda::counters();
    f();
    return (cuda::counters() - before).launches;
  }
  static Tensor ones(const Shape& shape, DType dtype) { return Tensor::full(shape, 1, dtype, gpu); }
};

TEST_F(CudaLinearLaunches, BiasAndActivationArePartOfTheProduct) {
  const struct {
    const char* name;
    DType dtype;
  } kernels[] = {{"mma", DType::bf16}, {"portable", DType::bf16}, {"portable", DType::f32}};
  for (const auto& [name, dtype] : kernels) {
    const ForceCandidate force("linear", name);
    const Tensor x = requires_grad(ones({16, 24}, dtype)), w = requires_grad(ones({8, 24}, dtype)),
                 b = requires_grad(ones({8}, dtype));
    for (const Activation activation : all_activations) {
      SCOPED_TRACE(testing::Message() << name << " " << dtype << " " << name_of(activation));
      EXPECT_EQ(launches([&] { (void)linear(x, w, b, activation); }), 1);
      const NoGrad no_grad;
      EXPECT_EQ(launches([&] { (void)linear(x, w, b, activation); }), 1);
    }
  }
}

TEST_F(CudaLinearLaunches, LongSumsAreTwoKernels) {
  const ForceCandidate force("linear", "mma");
  const Tensor x = requires_grad(ones({16, 1024}, DType::f16)), w = ones({8, 1024}, DType::f16),
               b = ones({8}, DType::f16);
  for (const Activation activation : all_activations)
    EXPECT_EQ(launches([&] { (void)linear(x, w, b, activation); }), 2) << name_of(activation);
}

TEST_F(CudaLinearLaunches, LaterContributionsAreAddedByTheProduct) {
  const ForceCandidate force("linear", "portable");
  const Tensor x = ones({16, 24}, DType::f32), w = requires_grad(ones({8, 24}, DType::f32));
  const Tensor dy = ones({16, 8}, DType::f32);
  for (const double times : {1.0, 2.0, 3.0}) {
    const Tensor y = linear(x, w, Tensor());
    EXPECT_EQ(launches([&] { backward(y, dy); }), 1);
    EXPECT_EQ(grad_of(w).to_doubles(), std::vector<double>(8 * 24, 16 * times));
  }
}

}  // namespace
}  // namespace hearth::test::linear_launches_test
