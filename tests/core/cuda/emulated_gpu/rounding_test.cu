// SPDX-License-Identifier: Apache-2.0
// What a seed changes about rounding, and what it must not.
#include "tests/emulated_gpu/rounding.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "core/cuda/runtime.h"
#include "core/error.h"
#include "core/tensor.h"
#include "ops/device/mma.h"

namespace {

using namespace hearth;
using namespace hearth::cuda;

class EmulateRounding : public testing::Test {
 protected:
  void TearDown() override { emulate::set_rounding(before_); }

 private:
  std::string before_ = emulate::rounding();
};

constexpr Device gpu{DeviceType::cuda, 0};

__global__ void fast_functions(const float* x, float* y, int n) {
  for (int i = static_cast<int>(threadIdx.x); i < n; i += static_cast<int>(blockDim.x)) {
    y[i] = __expf(x[i]);
    y[n + i] = exp2_rounded(x[i]);
    y[2 * n + i] = rsqrtf(x[i]);
  }
}

std::vector<float> functions_of(const std::vector<float>& values) {
  const auto n = static_cast<std::int64_t>(values.size());
  const Tensor x = Tensor::of({n}, values).to(gpu), y = Tensor::zeros({3 * n}, DType::f32, gpu);
  launch(stream_of(gpu), "fast_functions", {1, 32}, fast_functions, x.data<const float>(), y.data<float>(),
         static_cast<int>(n));
  const Tensor here = y.to(Device{});
  return {here.data<const float>(), here.data<const float>() + 3 * n};
}

TEST_F(EmulateRounding, ApproximationsMoveByTwoUlpAndRepeat) {
  std::vector<float> x;
  for (int i = 1; i <= 1000; ++i) x.push_back(0.01f * static_cast<float>(i));
  emulate::set_rounding("exact");
  const std::vector<float> exact = functions_of(x);
  for (const char* seed : {"1", "2"}) {
    emulate::set_rounding(seed);
    const std::vector<float> near = functions_of(x);
    EXPECT_EQ(near, functions_of(x));
    int steps[5] = {};
    for (std::size_t i = 0; i < exact.size(); ++i) {
      const int step = static_cast<int>(__float_as_uint(near[i]) - __float_as_uint(exact[i]));
      ASSERT_LE(std::abs(step), 2) << exact[i];
      ++steps[step + 2];
    }
    for (const int count : steps) EXPECT_GT(count, 400) << seed;
  }
}

TEST_F(EmulateRounding, SpecialValuesStayExact) {
  constexpr float infinity = std::numeric_limits<float>::infinity();
  for (const char* seed : {"1", "2", "3", "4", "5"}) {
    emulate::set_rounding(seed);
    EXPECT_EQ(__expf(0.0f), 1.0f);
    EXPECT_EQ(__expf(-infinity), 0.0f);
    EXPECT_EQ(exp2_rounded(0.0f), 1.0f);
    EXPECT_EQ(exp2_rounded(-1000.0f), 0.0f);
    EXPECT_EQ(reciprocal_rounded(infinity), 0.0f);
    EXPECT_TRUE(std::isnan(reciprocal_rounded(std::nanf(""))));
    EXPECT_EQ(rsqrtf(0.0f), infinity);
    EXPECT_TRUE(std::isnan(__expf(std::nanf(""))));
    EXPECT_TRUE(std::isfinite(emulate::approximate(std::numeric_limits<float>::max(), 1.0f)));
  }
}

// Each lane's words as they come; 1 + 2^-12 has a rest that sums in f32 lose or keep by their order.
__global__ void one_product(const unsigned* words, float* d) {
  const unsigned lane = threadIdx.x;
  const unsigned a[4] = {words[lane], words[32 + lane], words[64 + lane], words[96 + lane]};
  const unsigned b[2] = {words[128 + lane], words[160 + lane]};
  float sum[4] = {0.1f, 0.2f, 0.3f, 0.4f};
  mma_m16n8k16<f16>(sum, a, b);
  mma_m16n8k16<f16>(sum, a, b);
  for (unsigned i = 0; i < 4; ++i) d[lane * 4 + i] = sum[i];
}

TEST_F(EmulateRounding, TensorCoresSumInAnOrderOfTheSeed) {
  std::vector<std::int32_t> words;
  emulate::set_rounding("exact");
  for (std::int32_t i = 0; i < 192; ++i)
    words.push_back(static_cast<std::int32_t>(f16(0.37f * static_cast<float>(i % 11 - 5)).bits) << 16 |
                    f16(0.013f * static_cast<float>(i % 17 + 1)).bits);
  const Tensor from = Tensor::of({192}, words).to(gpu);
  const auto run = [&](const char* rounding) {
    emulate::set_rounding(rounding);
    const Tensor d = Tensor::zeros({128}, DType::f32, gpu);
    launch(stream_of(gpu), "one_product", {1, 32}, one_product,
           reinterpret_cast<const unsigned*>(from.data<const std::int32_t>()), d.data<float>());
    return d.to_doubles();
  };
  const std::vector<double> exact = run("exact");
  for (const char* seed : {"1", "2", "3"}) {
    const std::vector<double> other = run(seed);
    EXPECT_EQ(other, run(seed));
    EXPECT_NE(other, exact) << seed;
    for (std::size_t i = 0; i < exact.size(); ++i) EXPECT_NEAR(other[i], exact[i], 1e-5);
  }
}

TEST_F(EmulateRounding, NamesAreReadBack) {
  emulate::set_rounding("7");
  EXPECT_EQ(emulate::rounding(), "7");
  emulate::set_rounding("exact");
  EXPECT_EQ(emulate::rounding(), "exact");
  for (const char* wrong : {"", "0", "-1", "1x", "nearest"}) EXPECT_THROW(emulate::set_rounding(wrong), UsageError);
}

}  // namespace
