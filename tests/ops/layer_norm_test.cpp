// SPDX-License-Identifier: Apache-2.0
#include "ops/norm/layer_norm.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <vector>

#include "autograd/backward.h"
#include "autograd/grad_state.h"
#include "ops/norm/add_layer_norm.h"
#include "ops/shape/view.h"
#include "tests/support/devices.h"
#include "tests/support/op_test.h"

namespace hearth::test::layer_norm_test {
namespace {

// Odd, aligned, more rows than one partial sum, longer than a piece of work, and a transformer's.
// On a device lanes of a warp share the short rows, several rows a warp; blocks hold the longer ones in two sizes, and
// read the longest again. 600 rows are more than there are blocks.
const Shape shapes[] = {{2, 2},   {5, 37},   {2, 3, 129}, {150, 8},  {2, 8, 96}, {2, 4099},
                        {3, 768}, {3, 1024}, {600, 300},  {3, 1536}, {2, 3072},  {2, 9216}};

Tensor run(Draw& draw, const Shape& shape, double eps) {
  const Tensor x = draw.normal(shape);
  const Tensor gamma = draw.away_from_zero({shape.dim(-1)}, Width::wide);
  const Tensor beta = draw.normal({shape.dim(-1)}, 1.0, Width::wide);
  return layer_norm(x, gamma, beta, eps);
}

std::vector<double> naive(Draw& draw, const Shape& shape, double eps) {
  const std::vector<double> x = draw.normal(shape).to_doubles();
  const std::vector<double> gamma = draw.away_from_zero({shape.dim(-1)}, Width::wide).to_doubles();
  const std::vector<double> beta = draw.normal({shape.dim(-1)}, 1.0, Width::wide).to_doubles();
  const std::size_t cols = gamma.size();
  std::vector<double> y(x.size());
  for (std::size_t row = 0; row < x.size(); row += cols) {
    double mean = 0, variance = 0;
    for (std::size_t c = 0; c < cols; ++c) mean += x[row + c] / static_cast<double>(cols);
    for (std::size_t c = 0; c < cols; ++c)
      variance += (x[row + c] - mean) * (x[row + c] - mean) / static_cast<double>(cols);
    for (std::size_t c = 0; c < cols; ++c)
      y[row + c] = (x[row + c] - mean) / std::sqrt(variance + eps) * gamma[c] + beta[c];
  }
  return y;
}

OP_TEST(LayerNorm) {
  for (const Shape& shape : shapes)
    for (const double eps : {1e-5, 0.1}) {
      // Two values normalise to +-1 whatever they are: their gradient is a small difference.
      if (shape.dim(-1) == 2 && eps < 0.01) continue;
      // The oracle has shown both.
      if (current_site().device.is_cuda() && shape.dim(-1) != 2 && eps > 0.01) continue;
      check([&](Draw& draw) { return run(draw, shape, eps); }, [&](Draw& draw) { return naive(draw, shape, eps); },
            {.tolerance_scale = 2.0});
    }
}

// On the CPU as many rows go side by side as a vector has lanes, or fewer of long ones, and what is left of them. A row
// has the same bits among others as alone.
TEST(LayerNorm, HasTheBitsOfItsRows) {
  for (const DType dtype : {DType::f32, DType::f64, DType::f16, DType::bf16})
    for (const std::int64_t cols : {5, 96, 300, 1500}) {
      Random random(3, static_cast<std::uint64_t>(cols));
      std::vector<double> values(static_cast<std::size_t>(37 * cols));
      for (double& value : values) value = 3 + random.normal();
      const Tensor x = Tensor::of<double>({37, cols}, values).to(dtype);
      const DType wide = dtype == DType::f64 ? dtype : DType::f32;
      const Tensor gamma = Tensor::full({cols}, 1.25, wide), beta = Tensor::full({cols}, 0.5, wide);
      const std::vector<double> y = layer_norm(x, gamma, beta).to_doubles();
      for (std::int64_t r = 0; r < 37; ++r) {
        const std::vector<double> row = layer_norm(slice(x, 0, r, r + 1), gamma, beta).to_doubles();
        EXPECT_TRUE(std::equal(row.begin(), row.end(), y.begin() + r * cols)) << cols << " columns, row " << r;
      }
    }
}

// On a device the gradients of the parameters of such rows are summed over runs of 16 rows.
OP_TEST(LayerNormManyLongRows) {
  if (current_site().device.is_cpu()) return;
  check([](Draw& draw) { return run(draw, {17, 8200}, 1e-5); }, {.tolerance_scale = 2.0});
}

// Behind another op nobody else holds dy, so the gradient is written over it.
OP_TEST(LayerNormInAChain) {
  const Shape shape{3, 37};
  check(
      [&](Draw& draw) {
        return layer_norm(run(draw, shape, 0.1), draw.positive({37}, Width::wide), draw.normal({37}, 1.0, Width::wide),
                          0.1);
      },
      {.tolerance_scale = 4.0});
}

/// Rows that a warp of a device holds, that a block holds, and longer ones.
constexpr std::int64_t edge_widths[] = {100, 2000, 9000};

TEST(LayerNormOnDevices, ConstantRowGivesTheBias) {
  for (const Device device : devices())
    for (const std::int64_t cols : edge_widths) {
      const auto constant = [&](double value) { return Tensor::full({cols}, value, DType::f32, device); };
      const Tensor x = Tensor::full({3, cols}, 12345.678, DType::f32, device);
      for (const double value : layer_norm(x, constant(3.0), constant(1.0)).to_doubles())
        ASSERT_EQ(value, 1.0) << device << " " << cols;
    }
}

TEST(LayerNormOnDevices, LargeMeanKeepsItsVariance) {
  for (const Device device : devices())
    for (const std::int64_t cols : {100, 2000, 9000, 1 << 20}) {
      const auto constant = [&](double value) { return Tensor::full({cols}, value, DType::f32, device); };
      std::vector<float> values;
      for (std::int64_t i = 0; i < 2 * cols; ++i) values.push_back(1000000.0f + static_cast<float>(i % 2));
      const Tensor x = Tensor::of({2, cols}, values).to(device);
      const std::vector<double> result = layer_norm(x, constant(1.0), constant(0.0), 0.0).to_doubles();
      for (std::size_t i = 0; i < result.size(); ++i)
        ASSERT_NEAR(result[i], i % 2 == 0 ? -1.0 : 1.0, 1e-3) << device << " " << cols;
    }
}

// More rows than a device has at work at once, whose contents come again every seventh.
TEST(LayerNormOnDevices, EqualRowsGiveTheSameHoweverMany) {
  constexpr std::int64_t period = 7, times = 500, cols = 256;
  const auto rows_of = [](std::int64_t rows, double step, DType dtype, Device device) {
    std::vector<double> values;
    for (std::int64_t i = 0; i < rows * cols; ++i)
      values.push_back(std::sin(step * static_cast<double>(i % (period * cols))));
    return Tensor::of<double>({rows, cols}, values).to(dtype).to(device);
  };
  for (const Device device : devices())
    for (const DType dtype : {DType::f32, DType::bf16}) {
      const auto pass = [&](std::int64_t rows) {
        const Tensor x = requires_grad(rows_of(rows, 1.3, dtype, device)), f = rows_of(rows, 0.9, dtype, device);
        const Tensor gamma = requires_grad(Tensor::full({cols}, 0.7, DType::f32, device)),
                     beta = requires_grad(Tensor::full({cols}, 0.3, DType::f32, device));
        const Tensor y = add_layer_norm(layer_norm(x, gamma, beta), f, gamma, beta).y;
        backward(y, rows_of(rows, 2.1, dtype, device));
        return std::array{y.to_doubles(), grad_of(x).to_doubles(), grad_of(gamma).to_doubles(),
                          grad_of(beta).to_doubles()};
      };
      const auto few = pass(period), many = pass(period * times);
      for (const std::size_t k : {0, 1})
        for (std::size_t i = 0; i < many[k].size(); ++i)
          ASSERT_EQ(many[k][i], few[k][i % few[k].size()]) << device << k;
      for (const std::size_t k : {2, 3})
        for (std::size_t i = 0; i < few[k].size(); ++i) ASSERT_NEAR(many[k][i] / times, few[k][i], 1e-4) << device << k;
    }
}

TEST(LayerNormEdges, EmptyIsLegal) {
  EXPECT_EQ(layer_norm(Tensor::zeros({3, 0}), Tensor::zeros({0}), Tensor::zeros({0})).shape(), (Shape{3, 0}));
  const Tensor gamma = requires_grad(Tensor::full({4}, 1.0));
  const Tensor y = layer_norm(Tensor::zeros({0, 4}), gamma, Tensor::zeros({4}));
  EXPECT_EQ(y.shape(), (Shape{0, 4}));
  backward(y, Tensor::zeros({0, 4}));
  EXPECT_EQ(grad_of(gamma).to_doubles(), (std::vector<double>{0, 0, 0, 0}));
}

TEST(LayerNormEdges, RefusesBadArguments) {
  const Tensor x = Tensor::zeros({2, 3}), one = Tensor::full({3}, 1.0);
  const char* op = "layer_norm";
  refuses<UsageError>(op, [&] { return layer_norm({}, one, one); });
  refuses<UsageError>(op, [&] { return layer_norm(x, {}, one); });
  refuses<UsageError>(op, [&] { return layer_norm(x, one, {}); });
  refuses<ShapeError>(op, [&] { return layer_norm(Tensor::zeros({}), one, one); });
  refuses<ShapeError>(op, [&] { return layer_norm(x, Tensor::zeros({4}), one); });
  refuses<ShapeError>(op, [&] { return layer_norm(x, one, Tensor::zeros({2, 3})); });
  refuses<DTypeError>(op, [&] { return layer_norm(x.to(DType::i64), one, one); });
  refuses<DTypeError>(op, [&] { return layer_norm(x.to(DType::bf16), one.to(DType::bf16), one); });
  refuses<DTypeError>(op, [&] { return layer_norm(x.to(DType::f64), one, one); });
  refuses<UsageError>(op, [&] { return layer_norm(x, one, one, -1e-5); });
  refuses<UsageError>(op, [&] { return layer_norm(x, one, one, std::nan("")); });
}

}  // namespace
}  // namespace hearth::test::layer_norm_test
