// SPDX-License-Identifier: Apache-2.0
// Norm, ReLU and max pooling as one op, against the two ops.
#include "ops/norm/batch_norm_pool.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "autograd/backward.h"
#include "autograd/grad_state.h"
#include "core/cpu/parallel.h"
#include "core/random.h"
#include "tests/support/kept_threads.h"
#include "tests/support/op_test.h"

namespace hearth::test::batch_norm_pool_test {
namespace {

struct Case {
  Shape x;
  MaxPool2dOptions pool;
};

// One pixel wide, a residual network's stem, uneven windows, windows apart from each other, many channels; on the CPU
// more rows than a piece of work has.
const std::vector<Case>& cases() {
  static const std::vector<Case> all{
      {{2, 3, 1, 8}, {.kernel = {3, 1}, .stride = 1, .padding = {1, 0}}},
      {{2, 9, 8, 16}, {.kernel = 3, .stride = 2, .padding = 1}},
      {{2, 7, 5, 24}, {.kernel = {3, 2}, .stride = Pair{2, 1}, .padding = {1, 0}}},
      {{1, 11, 7, 8}, {.kernel = 2, .stride = 4}},
      {{1, 4, 6, 264}, {.kernel = 3, .stride = 2, .padding = 1}},
      {{2, 9, 8, 32}, {.kernel = 3, .stride = 2, .padding = 1}},
      {{2, 7, 5, 64}, {.kernel = {3, 2}, .stride = Pair{2, 1}, .padding = {1, 0}}},
      {{1, 11, 7, 32}, {.kernel = 2, .stride = 4}},
      {{1, 33, 40, 96}, {.kernel = 3, .stride = 2, .padding = 1}},
  };
  return all;
}

Tensor two_ops(const Case& c, const Tensor& x, const Tensor& gamma, const Tensor& beta) {
  return max_pool2d(batch_norm(x, gamma, beta, {.activation = Activation::relu}, {}, {}), c.pool);
}

Tensor one_op(const Case& c, const Tensor& x, const Tensor& gamma, const Tensor& beta) {
  const BatchNormOptions options{.activation = Activation::relu};
  if (x.device().is_cpu() && c.x[3] % 32 != 0) return two_ops(c, x, gamma, beta);
  return detail::batch_norm_pool(x, gamma, beta, options, {}, {}, c.pool, nullptr);
}

// Maxima that differ by less than 16 bits tell apart go to another pixel than in f64; those types are below.
OP_TEST(BatchNormPool) {
  if (size_of(site_dtype()) == 2) return;
  for (const Case& c : cases()) {
    SCOPED_TRACE(testing::Message() << "x " << c.x);
    const Shape channels{c.x[3]};
    check([&](Draw& draw) {
      const Tensor x = draw.distinct(c.x), gamma = draw.away_from_zero(channels, Width::wide);
      return one_op(c, x, gamma, draw.normal(channels, 0.5, Width::wide));
    });
  }
}

/// The result and the gradients of x, gamma and beta.
std::vector<Tensor> step_of(const Case& c, Tensor (*run)(const Case&, const Tensor&, const Tensor&, const Tensor&)) {
  Random random(11, 3);
  const auto numbers = [&](const Shape& shape, bool wide) {
    std::vector<double> values(static_cast<std::size_t>(shape.size()));
    for (double& value : values) value = random.normal();
    const DType dtype = wide && size_of(site_dtype()) == 2 ? DType::f32 : site_dtype();
    return Tensor::of<double>(shape, values).to(dtype).to(current_site().device);
  };
  const Shape channels{c.x[3]};
  const Tensor x = requires_grad(numbers(c.x, false)), gamma = requires_grad(numbers(channels, true)),
               beta = requires_grad(numbers(channels, true));
  const Tensor y = run(c, x, gamma, beta);
  backward(y, numbers(y.shape(), false));
  return {y, grad_of(x), grad_of(gamma), grad_of(beta)};
}

OP_TEST(BatchNormPoolIsTwoOps) {
  std::vector<Case> all = cases();
  // More windows side by side than a block has threads for, and more below each other than a thread takes.
  all.push_back({{2, 20, 67, 64}, {.kernel = 3, .stride = 2, .padding = 1}});
  for (const Case& c : all) {
    SCOPED_TRACE(testing::Message() << "x " << c.x);
    const std::vector<Tensor> found = step_of(c, one_op), expected = step_of(c, two_ops);
    EXPECT_EQ(found[0].to_doubles(), expected[0].to_doubles());
    const double ulp = site_dtype() == DType::f64   ? 1e-14
                       : site_dtype() == DType::f32 ? 1e-6
                       : site_dtype() == DType::f16 ? 1e-3
                                                    : 8e-3;
    for (std::size_t i = 1; i < found.size(); ++i) {
      const std::vector<double> a = found[i].to_doubles(), b = expected[i].to_doubles();
      double largest = 0, off = 0;
      for (std::size_t at = 0; at < a.size(); ++at) {
        largest = std::max(largest, std::abs(b[at]));
        off = std::max(off, std::abs(a[at] - b[at]));
      }
      EXPECT_GT(largest, 0) << i;
      EXPECT_LE(off, 8 * ulp * largest) << i;
    }
  }
}

class BatchNormPool : public testing::TestWithParam<DeviceType> {
 protected:
  void SetUp() override {
    if (GetParam() == DeviceType::cuda && device_count(DeviceType::cuda) == 0)
      GTEST_SKIP() << "there is no CUDA device";
  }
  const Device device{GetParam(), 0};
  const BatchNormOptions options{.activation = Activation::relu};

  Tensor ones(const Shape& shape, DType dtype) const { return Tensor::full(shape, 1.0, dtype, device); }
};

TEST_P(BatchNormPool, NaNWins) {
  const Case stem{{2, 9, 8, 32}, {.kernel = 3, .stride = 2, .padding = 1}};
  const Tensor gamma = ones({32}, DType::f32);
  for (const float nan : {std::numeric_limits<float>::quiet_NaN(), -std::numeric_limits<float>::quiet_NaN()})
    for (const DType dtype : {DType::f32, DType::f16, DType::bf16}) {
      Tensor x = Tensor::full(stem.x, 1.0, DType::f32);
      x.data<float>()[0] = nan;
      const std::vector<double> y = one_op(stem, x.to(dtype).to(device), gamma, gamma).to_doubles();
      EXPECT_TRUE(std::isnan(y[0])) << dtype;
      EXPECT_FALSE(std::isnan(y[1])) << dtype;
    }
}

TEST_P(BatchNormPool, SaysWhatItIsNotFor) {
  const Tensor x = ones({2, 4, 4, 32}, DType::f16);
  const MaxPool2dOptions pool{.kernel = 2};
  const auto reason = [](const Tensor& of, const BatchNormOptions& norm, const MaxPool2dOptions& windows) {
    return detail::why_no_batch_norm_pool(of, norm, windows);
  };
  EXPECT_EQ(reason(x, options, pool), "");
  EXPECT_EQ(reason(ones({2, 4, 4, 8}, DType::f16), options, pool).empty(), device.is_cuda());
  EXPECT_NE(reason({}, options, pool), "");
  EXPECT_NE(reason(ones({2, 4, 4, 12}, DType::f16), options, pool), "");
  EXPECT_NE(reason(ones({2, 4, 32}, DType::f16), options, pool), "");
  EXPECT_NE(reason(x, {.training = false, .activation = Activation::relu}, pool), "");
  EXPECT_NE(reason(x, {}, pool), "");
  EXPECT_NE(reason(ones({2, 16, 16, 32}, DType::f16), options, {.kernel = 16}), "");
  const Tensor gamma = ones({32}, DType::f32);
  refuses<UsageError>("batch_norm_pool", [&] {
    return detail::batch_norm_pool(x, gamma, gamma, {.training = false, .activation = Activation::relu}, gamma, gamma,
                                   pool, nullptr);
  });
}

// Pieces of work depend on the shape alone.
TEST(BatchNormPoolThreads, DoNotChangeBits) {
  const Case c{{3, 40, 40, 64}, {.kernel = 3, .stride = 2, .padding = 1}};
  const KeptThreads kept;
  std::vector<std::vector<Tensor>> found;
  for (const int threads : {1, 2, 5, 8}) {
    cpu::set_threads(threads);
    found.push_back(step_of(c, one_op));
  }
  for (const std::vector<Tensor>& other : found)
    for (std::size_t i = 0; i < other.size(); ++i) EXPECT_EQ(other[i].to_doubles(), found[0][i].to_doubles()) << i;
}

INSTANTIATE_TEST_SUITE_P(Devices, BatchNormPool, testing::Values(DeviceType::cpu, DeviceType::cuda),
                         [](const auto& site) { return site.param == DeviceType::cpu ? "Cpu" : "Cuda"; });

}  // namespace
}  // namespace hearth::test::batch_norm_pool_test
