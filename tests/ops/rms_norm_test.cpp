// SPDX-License-Identifier: Apache-2.0
#include "ops/norm/rms_norm.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "autograd/backward.h"
#include "autograd/grad_state.h"
#include "tests/support/op_test.h"

namespace hearth::test::rms_norm_test {
namespace {

// As for layer_norm: odd, aligned, more rows than one partial sum, longer than a piece of work, a transformer's.
const Shape shapes[] = {{1, 1}, {5, 37}, {2, 3, 129}, {150, 8}, {2, 4099}, {3, 768}, {600, 300}, {0, 8}, {2, 9216}};

Tensor run(Draw& draw, const Shape& shape, double eps) {
  const Tensor x = draw.normal(shape);
  return rms_norm(x, draw.away_from_zero({shape.dim(-1)}, Width::wide), eps);
}

std::vector<double> naive(Draw& draw, const Shape& shape, double eps) {
  std::vector<double> x = draw.normal(shape).to_doubles();
  const std::vector<double> gamma = draw.away_from_zero({shape.dim(-1)}, Width::wide).to_doubles();
  const std::size_t cols = gamma.size();
  for (std::size_t row = 0; row < x.size(); row += cols) {
    double squares = 0;
    for (std::size_t c = 0; c < cols; ++c) squares += x[row + c] * x[row + c] / static_cast<double>(cols);
    for (std::size_t c = 0; c < cols; ++c) x[row + c] *= gamma[c] / std::sqrt(squares + eps);
  }
  return x;
}

OP_TEST(RmsNorm) {
  for (const Shape& shape : shapes) {
    // One value alone normalises to +-1 unless eps is large.
    const double eps = shape.dim(-1) == 1 ? 0.5 : 1e-6;
    check([&](Draw& draw) { return run(draw, shape, eps); }, [&](Draw& draw) { return naive(draw, shape, eps); },
          {.tolerance_scale = 2.0});
  }
}

// Behind another op nobody else holds dy, so the gradient is written over it.
OP_TEST(RmsNormInAChain) {
  check(
      [&](Draw& draw) {
        return rms_norm(run(draw, {3, 37}, 0.1), draw.positive({37}, Width::wide), 0.1);
      },
      {.tolerance_scale = 4.0});
}

TEST(RmsNorm, ZerosStayZeros) {
  const Tensor x = requires_grad(Tensor::zeros({2, 8}));
  const Tensor y = rms_norm(x, Tensor::full({8}, 2.0));
  for (const double value : y.to_doubles()) EXPECT_EQ(value, 0.0);
  backward(y, Tensor::full({2, 8}, 1.0));
  for (const double value : grad_of(x).to_doubles()) EXPECT_NEAR(value, 2000.0, 0.01);
}

TEST(RmsNormRefusal, Arguments) {
  const Tensor x = Tensor::zeros({2, 8}), gamma = Tensor::zeros({8});
  refuses<UsageError>("rms_norm", [&] { return rms_norm(Tensor(), gamma); });
  refuses<DTypeError>("rms_norm", [&] { return rms_norm(x.to(DType::i32), gamma); });
  refuses<ShapeError>("rms_norm", [&] { return rms_norm(Tensor::zeros({}), gamma); });
  refuses<UsageError>("rms_norm", [&] { return rms_norm(x, Tensor()); });
  refuses<ShapeError>("rms_norm", [&] { return rms_norm(x, Tensor::zeros({7})); });
  refuses<DTypeError>("rms_norm", [&] { return rms_norm(x, gamma.to(DType::bf16)); });
  refuses<UsageError>("rms_norm", [&] { return rms_norm(x, gamma, -1.0); });
}

}  // namespace
}  // namespace hearth::test::rms_norm_test
