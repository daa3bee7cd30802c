// SPDX-License-Identifier: Apache-2.0
// Batch normalisation by a library: what surrounds it everywhere, and itself where there is a device that it runs on.
#include <gtest/gtest.h>

#include <vector>

#include "autograd/backward.h"
#include "autograd/grad_state.h"
#include "core/random.h"
#include "ops/candidates.h"
#include "ops/conv/conv2d_cudnn.h"
#include "ops/norm/folded_rows.h"
#include "ops/norm/library.h"
#include "tests/support/op_test.h"

namespace hearth::test {
namespace {

constexpr Device gpu{DeviceType::cuda, 0};

class CudaBatchNormLibrary : public testing::Test {
 protected:
  void SetUp() override {
    if (device_count(DeviceType::cuda) == 0) GTEST_SKIP() << "there is no CUDA device";
  }
  cuda::Stream& stream() { return cuda::stream_of(gpu); }
};

Tensor numbers(const Shape& shape, std::uint64_t stream, DType dtype = DType::f32) {
  Random random(17, stream);
  std::vector<double> values(static_cast<std::size_t>(shape.size()));
  for (double& value : values) value = random.normal();
  return Tensor::of<double>(shape, values).to(dtype).to(gpu);
}

TEST_F(CudaBatchNormLibrary, StatisticsAreAdopted) {
  const std::int64_t rows = 300, channels = 260;
  const Tensor x = numbers({rows, channels}, 1), gamma = numbers({channels}, 2), beta = numbers({channels}, 3);
  struct Outcome {
    Tensor coefficients = Tensor::empty({4, channels}, DType::f32, gpu);
    Tensor rstd = Tensor::empty({channels}, DType::f64, gpu);
    Tensor mean = Tensor::full({channels}, 0.5, DType::f32, gpu),
           variance = Tensor::full({channels}, 2, DType::f32, gpu);
  };
  const Outcome own, adopted;
  const BatchNormOptions options{.momentum = 0.75};
  kernels::batch_norm_coefficients(stream(), x, gamma, beta, options, own.mean, own.variance, own.coefficients,
                                   own.rstd);
  const std::vector<double> table = own.coefficients.to_doubles();
  const std::vector<double> means(table.begin(), table.begin() + channels);
  kernels::adopt_batch_statistics(stream(), Tensor::of<double>({channels}, means).to(DType::f32).to(gpu),
                                  own.rstd.to(DType::f32), rows, gamma, beta, options, adopted.mean, adopted.variance,
                                  adopted.coefficients, adopted.rstd);
  expect_close(adopted.coefficients, own.coefficients, 1e-6);
  expect_close(adopted.rstd, own.rstd, 1e-6);
  expect_close(adopted.mean, own.mean, 1e-6);
  expect_close(adopted.variance, own.variance, 1e-6);
}

// A variance that vanishes within rounding does not become negative.
TEST_F(CudaBatchNormLibrary, NoVarianceStaysNone) {
  const auto one = [](double value, DType dtype = DType::f32) { return Tensor::full({1}, value, dtype, gpu); };
  const Tensor variance = one(0), rstd = one(0, DType::f64), table = Tensor::zeros({3, 1}, DType::f32, gpu);
  kernels::adopt_batch_statistics(stream(), one(3), one(316.2278), 8, one(1), one(0), {.momentum = 1.0}, one(0),
                                  variance, table, rstd);
  EXPECT_GE(variance.to_doubles()[0], 0.0);
  EXPECT_LT(variance.to_doubles()[0], 1e-9);
}

TEST_F(CudaBatchNormLibrary, MaskOfTheResultIsThatOfTheKernel) {
  for (const Shape& shape : {Shape{5, 3}, {4, 3, 3, 8}, {2, 2, 37}, {3, 2, 129}})
    for (const DType dtype : {DType::f32, DType::f16}) {
      const Tensor x = numbers(shape, 4, dtype), residual = numbers(shape, 5, dtype), y = Tensor::empty_like(x);
      const Tensor table = numbers({3, shape.dim(-1)}, 6);
      const kernels::FoldedRows folded(x);
      const Tensor mask = Tensor::empty({folded.rows, folded.mask_bytes()}, DType::u8, gpu);
      const Tensor other = Tensor::empty_like(mask);
      kernels::batch_norm(stream(), x, table, residual, true, y, mask);
      kernels::relu_mask(stream(), y, other);
      EXPECT_EQ(other.to_doubles(), mask.to_doubles()) << shape << ' ' << dtype;
    }
}

TEST_F(CudaBatchNormLibrary, AgreesWithTheOwnKernelsOrSaysWhyNot) {
  for (const DType dtype : {DType::f32, DType::f16, DType::bf16})
    for (const bool residual : {false, true})
      for (const Activation activation : {Activation::none, Activation::relu}) {
        const auto run = [&] {
          const Tensor x = as_leaf(numbers({4, 6, 5, 16}, 1, dtype)), other = as_leaf(numbers({4, 6, 5, 16}, 2, dtype));
          const Tensor gamma = as_leaf(numbers({16}, 3)), beta = as_leaf(numbers({16}, 4));
          const Tensor mean = Tensor::zeros({16}, DType::f32, gpu), variance = Tensor::zeros({16}, DType::f32, gpu);
          const Tensor y =
              batch_norm(x, gamma, beta, {.activation = activation}, mean, variance, residual ? other : Tensor());
          backward(y, numbers(y.shape(), 5, dtype));
          return std::vector<Tensor>{y, mean, variance, grad_of(x), grad_of(gamma), grad_of(beta)};
        };
        const std::vector<Tensor> own = run();
        EXPECT_EQ(last_choice("batch_norm"), "own");
        const PinCandidate pin("batch_norm", "cudnn");
        if (!cuda::dnn::why_absent().empty()) {
          EXPECT_THROW(run(), DeviceError);
          continue;
        }
        const std::vector<Tensor> library = run();
        EXPECT_EQ(last_choice("batch_norm"), "cudnn");
        const double tolerance = dtype == DType::f32 ? 1e-5 : dtype == DType::f16 ? 1e-2 : 6e-2;
        for (std::size_t i = 0; i < own.size(); ++i) expect_close(library[i], own[i], tolerance);
      }
}

}  // namespace
}  // namespace hearth::test
