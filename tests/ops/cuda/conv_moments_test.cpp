// SPDX-License-Identifier: Apache-2.0
// The moments that a convolution's kernel leaves: how they are joined, what they cost, and what is refused. Their
// values are vouched for by the op tests.
#include <gtest/gtest.h>

#include <vector>

#include "core/cuda/counters.h"
#include "core/random.h"
#include "ops/conv/conv2d_moments.h"
#include "ops/dispatch/candidates.h"
#include "ops/norm/batch_norm_moments.h"
#include "tests/support/op_test.h"

namespace hearth::test::conv_moments_test {
namespace {

class CudaConvMoments : public testing::Test {
 protected:
  void SetUp() override {
    if (device_count(DeviceType::cuda) == 0) GTEST_SKIP() << "there is no CUDA device";
  }
  static constexpr Device gpu{DeviceType::cuda, 0};
};

TEST_F(CudaConvMoments, LargeMeanKeepsItsVariance) {
  const ForceCandidate force("conv2d", "portable");
  std::vector<float> values;
  for (std::int64_t i = 0; i < 40 * 40; ++i) values.push_back(1000000.0f + static_cast<float>(i % 2));
  const Tensor x = Tensor::of({1, 40, 40, 1}, values).to(gpu), one = Tensor::full({1}, 1.0, DType::f32, gpu);
  ChannelMoments moments;
  const Tensor y = detail::conv2d(x, Tensor::full({1, 1, 1, 1}, 1.0, DType::f32, gpu), {}, {}, &moments);
  ASSERT_TRUE(moments.parts.defined());
  const Tensor zero = Tensor::zeros({1}, DType::f32, gpu);
  const std::vector<double> result = detail::batch_norm(y, one, zero, {.eps = 0.0}, {}, {}, {}, &moments).to_doubles();
  for (std::size_t i = 0; i < result.size(); ++i) ASSERT_NEAR(result[i], i % 2 == 0 ? -1.0 : 1.0, 1e-3) << i;
}

// By a warp and by a block, whose last run is a short one.
TEST_F(CudaConvMoments, AnyNumberOfRunsIsJoined) {
  for (const std::int64_t run_rows : {1, 7, 800, 3000}) {
    const std::int64_t rows = 1500, channels = 3, runs = (rows + run_rows - 1) / run_rows;
    Random random(5, 1);
    std::vector<double> values(static_cast<std::size_t>(rows * channels));
    for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<double>(i % 3) * 5 + random.normal();
    std::vector<double> parts(static_cast<std::size_t>(2 * channels * runs), 0.0);
    for (std::int64_t c = 0; c < channels; ++c)
      for (std::int64_t run = 0; run < runs; ++run) {
        const std::int64_t begin = run * run_rows, end = std::min(rows, begin + run_rows);
        const auto at = [&](std::int64_t row) { return values[static_cast<std::size_t>(row * channels + c)]; };
        double& mean = parts[static_cast<std::size_t>(c * runs + run)];
        double& squares = parts[static_cast<std::size_t>((channels + c) * runs + run)];
        for (std::int64_t row = begin; row < end; ++row) mean += at(row) / static_cast<double>(end - begin);
        for (std::int64_t row = begin; row < end; ++row) squares += (at(row) - mean) * (at(row) - mean);
      }
    const Tensor x = Tensor::of<double>({rows, channels}, values).to(gpu);
    const ChannelMoments moments{Tensor::of<double>({2, channels, runs}, parts).to(gpu), run_rows};
    const auto constant = [&](double value) { return Tensor::full({channels}, value, DType::f64, gpu); };
    const Tensor mean = constant(0.0), variance = constant(0.0), other_mean = constant(0.0), other = constant(0.0);
    const Tensor joined =
        detail::batch_norm(x, constant(1.5), constant(0.5), {.momentum = 0.5}, mean, variance, {}, &moments);
    expect_close(joined, batch_norm(x, constant(1.5), constant(0.5), {.momentum = 0.5}, other_mean, other), 1e-13);
    expect_close(mean, other_mean, 1e-13);
    expect_close(variance, other, 1e-13);
  }
}

TEST_F(CudaConvMoments, AreNotTakenBehindAnActivation) {
  const Tensor x = Tensor::full({1, 4, 4, 2}, 1.0, DType::f32, gpu),
               w = Tensor::full({2, 1, 1, 2}, 1.0, DType::f32, gpu);
  const ForceCandidate force("conv2d", "portable");
  const Tensor b = Tensor::full({2}, 1.0, DType::f32, gpu);
  ChannelMoments moments;
  (void)detail::conv2d(x, w, {}, {}, &moments);
  EXPECT_TRUE(moments.parts.defined());
  (void)detail::conv2d(x, w, b, {}, &moments);
  EXPECT_TRUE(moments.parts.defined()) << "with a bias";
  (void)detail::conv2d(x, w, {}, {.activation = Activation::relu}, &moments);
  EXPECT_FALSE(moments.parts.defined()) << "behind an activation";
}

TEST_F(CudaConvMoments, NeitherBiasNorReluNorMomentsCostALaunch) {
  const Tensor x = Tensor::full({1, 4, 4, 8}, 1.0, DType::f16, gpu),
               w = Tensor::full({8, 1, 1, 8}, 1.0, DType::f16, gpu);
  const Tensor b = Tensor::full({8}, 1.0, DType::f16, gpu);
  for (const char* const candidate : {"portable", "mma"}) {
    const ForceCandidate force("conv2d", candidate);
    const auto launches = [&](auto&& f) {
      const cuda::Counters before = cuda::counters();
      f();
      return (cuda::counters() - before).launches;
    };
    ChannelMoments moments;
    EXPECT_EQ(launches([&] { (void)detail::conv2d(x, w, b, {}, &moments); }), 1);
    EXPECT_EQ(launches([&] { (void)conv2d(x, w, b, {.activation = Activation::relu}); }), 1);
  }
}

TEST_F(CudaConvMoments, OfAnotherTensorAreRefused) {
  const Tensor x = Tensor::zeros({4, 3}, DType::f32, gpu), one = Tensor::full({3}, 1.0, DType::f32, gpu);
  const auto run = [&](const Tensor& parts, std::int64_t run_rows) {
    const ChannelMoments moments{parts, run_rows};
    return detail::batch_norm(x, one, one, {}, {}, {}, {}, &moments);
  };
  const auto parts = [&](const Shape& shape, DType dtype = DType::f64, Device device = gpu) {
    return Tensor::zeros(shape, dtype, device);
  };
  EXPECT_EQ(run(parts({2, 3, 2}), 3).shape(), x.shape());
  const char* const what = "batch_norm: the moments";
  refuses<UsageError>(what, [&] { return run(parts({2, 3, 2}), 4); });
  refuses<UsageError>(what, [&] { return run(parts({2, 3, 2}), 1); });
  refuses<UsageError>(what, [&] { return run(parts({2, 3, 2}), 0); });
  refuses<UsageError>(what, [&] { return run(parts({2, 4, 2}), 3); });
  refuses<UsageError>(what, [&] { return run(parts({3, 3, 2}), 3); });
  refuses<UsageError>(what, [&] { return run(parts({6, 2}), 3); });
  refuses<UsageError>(what, [&] { return run(parts({2, 3, 2}, DType::f32), 3); });
  refuses<UsageError>(what, [&] { return run(parts({2, 3, 2}, DType::f64, Device{}), 3); });
}

}  // namespace
}  // namespace hearth::test::conv_moments_test
