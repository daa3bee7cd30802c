// SPDX-License-Identifier: Apache-2.0
#include "ops/softmax/softmax.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "autograd/grad_mode.h"
#include "tests/support/op_test.h"

namespace hearth::test::softmax_test {
namespace {

// Degenerate, odd, aligned, longer than a piece of work, and attention scores.
// On a device rows of up to 256 or 1024 elements belong to a warp, longer ones to a block, from 8192 on a larger one.
const Shape shapes[] = {{1},       {1, 1},    {3, 37},   {2, 5, 129}, {4, 64}, {2, 4099}, {2, 2, 16, 16},
                        {300, 70}, {3, 1000}, {2, 2048}, {2, 8200}};

std::vector<double> naive_log(const std::vector<double>& x, std::int64_t cols) {
  std::vector<double> y(x.size());
  const auto step = static_cast<std::size_t>(cols);
  for (std::size_t row = 0; row < x.size(); row += step) {
    const double most = *std::max_element(x.begin() + static_cast<std::ptrdiff_t>(row),
                                          x.begin() + static_cast<std::ptrdiff_t>(row + step));
    double sum = 0;
    for (std::size_t c = 0; c < step; ++c) sum += std::exp(x[row + c] - most);
    for (std::size_t c = 0; c < step; ++c) y[row + c] = x[row + c] - most - std::log(sum);
  }
  return y;
}

OP_TEST(Softmax) {
  for (const Shape& shape : shapes)
    check([&](Draw& draw) { return softmax(draw.normal(shape, 2.0)); },
          [&](Draw& draw) {
            std::vector<double> y = naive_log(draw.normal(shape, 2.0).to_doubles(), shape.dim(-1));
            for (double& value : y) value = std::exp(value);
            return y;
          },
          {.tolerance_scale = 2.0});
}

OP_TEST(LogSoftmax) {
  for (const Shape& shape : shapes)
    check([&](Draw& draw) { return log_softmax(draw.normal(shape, 2.0)); },
          [&](Draw& draw) { return naive_log(draw.normal(shape, 2.0).to_doubles(), shape.dim(-1)); },
          {.tolerance_scale = 2.0});
}

// Behind another op nobody else holds dy, so the gradient is written over it.
OP_TEST(SoftmaxInAChain) {
  check([&](Draw& draw) { return softmax(log_softmax(softmax(draw.normal({3, 37}, 2.0)))); }, {.tolerance_scale = 4.0});
}

TEST(SoftmaxEdges, LargeLogitsDoNotOverflow) {
  const Tensor x = Tensor::of<float>({1, 3}, {10000.0f, 10001.0f, -30000.0f});
  const std::vector<double> y = softmax(x).to_doubles(), z = log_softmax(x).to_doubles();
  EXPECT_NEAR(y[0], 1 / (1 + std::exp(1.0)), 1e-7);
  EXPECT_NEAR(y[1], 1 / (1 + std::exp(-1.0)), 1e-7);
  EXPECT_EQ(y[2], 0.0);
  EXPECT_NEAR(z[0], -std::log1p(std::exp(1.0)), 1e-6);
  EXPECT_NEAR(z[2], -40001.0 - std::log1p(std::exp(-1.0)), 4e-3);
}

TEST(SoftmaxEdges, MaskedElementsAreZeroAndMaskedRowsAreNotNumbers) {
  const float none = -std::numeric_limits<float>::infinity();
  const std::vector<double> y = softmax(Tensor::of<float>({2, 2}, {none, 3.0f, none, none})).to_doubles();
  EXPECT_EQ(y[0], 0.0);
  EXPECT_EQ(y[1], 1.0);
  EXPECT_TRUE(std::isnan(y[2]) && std::isnan(y[3]));
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const std::vector<double> z = softmax(Tensor::of<float>({1, 3}, {1.0f, nan, 2.0f})).to_doubles();
  for (const double value : z) EXPECT_TRUE(std::isnan(value));
}

TEST(SoftmaxEdges, EmptyIsLegal) {
  EXPECT_EQ(softmax(Tensor::zeros({0, 3})).shape(), (Shape{0, 3}));
  EXPECT_EQ(log_softmax(Tensor::zeros({3, 0})).shape(), (Shape{3, 0}));
}

TEST(SoftmaxEdges, AutocastWidens) {
  const AutocastScope scope(DType::bf16);
  EXPECT_EQ(softmax(Tensor::zeros({2, 3}, DType::bf16)).dtype(), DType::f32);
  EXPECT_EQ(log_softmax(Tensor::zeros({2, 3}, DType::bf16)).dtype(), DType::f32);
}

TEST(SoftmaxEdges, RefusesBadArguments) {
  refuses<UsageError>("softmax", [] { return softmax({}); });
  refuses<ShapeError>("softmax", [] { return softmax(Tensor::zeros({})); });
  refuses<DTypeError>("softmax", [] { return softmax(Tensor::zeros({2, 2}, DType::i32)); });
  refuses<DTypeError>("softmax", [] { return softmax(Tensor::zeros({2, 2}, DType::boolean)); });
  refuses<DTypeError>("softmax", [] { return softmax(Tensor::zeros({2, 2}, DType::u8)); });
  refuses<UsageError>("log_softmax", [] { return log_softmax({}); });
  refuses<ShapeError>("log_softmax", [] { return log_softmax(Tensor::zeros({})); });
  refuses<DTypeError>("log_softmax", [] { return log_softmax(Tensor::zeros({2, 2}, DType::i64)); });
}

}  // namespace
}  // namespace hearth::test::softmax_test
