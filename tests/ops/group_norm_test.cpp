// SPDX-License-Identifier: Apache-2.0
#include "ops/norm/group_norm.h"

#include <cmath>
#include <limits>

#include "autograd/backward.h"
#include "autograd/grad_state.h"
#include "ops/norm/layer_norm.h"
#include "tests/support/op_test.h"

namespace hearth::test::group_norm_test {
namespace {

struct Case {
  Shape x;
  std::int64_t groups;
};

// Instance norm, one group, odd groups, more channels in a group than threads, more groups than a piece, many pixels,
// other ranks.
const std::vector<Case>& cases() {
  static const std::vector<Case> all{
      {{2, 3, 5, 4}, 4},   {{2, 4, 3, 6}, 1}, {{1, 5, 7, 15}, 3}, {{2, 2, 1, 300}, 1},  {{1, 3, 3, 160}, 40},
      {{1, 37, 29, 8}, 2}, {{3, 7, 12}, 4},   {{5, 6}, 2},        {{2, 2, 3, 2, 4}, 2},
  };
  return all;
}

struct Inputs {
  Tensor x, gamma, beta;
};
Inputs draw_inputs(Draw& draw, const Shape& shape) {
  const std::int64_t c = shape.dim(-1);
  return {draw.normal(shape, 2.0), draw.uniform({c}, 0.5, 1.5, Width::wide), draw.normal({c}, 1.0, Width::wide)};
}

std::vector<double> naive_group_norm(const Inputs& in, std::int64_t groups, double eps) {
  const std::vector<double> x = in.x.to_doubles(), gamma = in.gamma.to_doubles(), beta = in.beta.to_doubles();
  const std::size_t c = gamma.size(), share = c / static_cast<std::size_t>(groups),
                    image = x.size() / static_cast<std::size_t>(in.x.dim(0));
  std::vector<double> y(x.size());
  for (std::size_t begin = 0; begin < x.size(); begin += image)
    for (std::size_t first = 0; first < c; first += share) {
      std::vector<std::size_t> members;
      for (std::size_t at = begin; at < begin + image; at += c)
        for (std::size_t k = 0; k < share; ++k) members.push_back(at + first + k);
      double mean = 0, variance = 0;
      for (const std::size_t at : members) mean += x[at] / static_cast<double>(members.size());
      for (const std::size_t at : members)
        variance += (x[at] - mean) * (x[at] - mean) / static_cast<double>(members.size());
      for (const std::size_t at : members)
        y[at] = (x[at] - mean) / std::sqrt(variance + eps) * gamma[at % c] + beta[at % c];
    }
  return y;
}

OP_TEST(GroupNorm) {
  for (const Case& c : cases()) {
    SCOPED_TRACE(testing::Message() << "x " << c.x << " in " << c.groups);
    check(
        [&](Draw& draw) {
          const Inputs in = draw_inputs(draw, c.x);
          return group_norm(in.x, in.gamma, in.beta, c.groups, 0.01);
        },
        [&](Draw& draw) { return naive_group_norm(draw_inputs(draw, c.x), c.groups, 0.01); }, {.tolerance_scale = 2.0});
  }
}

TEST(GroupNormValues, OneGroupOfOnePixelIsLayerNorm) {
  const Tensor x = Tensor::of<double>({2, 1, 4}, {1, 5, -2, 7, 3, 3, 8, 0});
  const Tensor gamma = Tensor::of<double>({4}, {1, 2, 3, 4}), beta = Tensor::of<double>({4}, {4, 3, 2, 1});
  expect_close(group_norm(x, gamma, beta, 1), layer_norm(x, gamma, beta), 1e-14);
}

TEST(GroupNormValues, LargeMeanCostsNoDigits) {
  std::vector<float> values(2 * 64 * 4);
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = 65536.0f + (i % 8 < 4 ? 1.0f : -1.0f);
  const Tensor y = group_norm(Tensor::of({2, 8, 8, 4}, values), Tensor::full({4}, 1), Tensor::zeros({4}), 2, 0.0);
  for (const double value : y.to_doubles()) EXPECT_EQ(std::abs(value), 1.0);
}

TEST(GroupNormValues, EqualValuesGiveBeta) {
  const Tensor y = group_norm(Tensor::full({1, 3, 3, 2}, 7), Tensor::full({2}, 5), Tensor::full({2}, -2), 2);
  EXPECT_EQ(y.to_doubles(), std::vector<double>(18, -2.0));
}

TEST(GroupNormSizes, EmptyGivesZeroGradients) {
  for (const Shape& shape : {Shape{0, 4, 4, 6}, {2, 0, 4, 6}, {2, 4, 4, 0}}) {
    const std::int64_t c = shape.dim(-1);
    const Tensor x = requires_grad(Tensor::empty(shape)), gamma = requires_grad(Tensor::full({c}, 1)),
                 beta = requires_grad(Tensor::full({c}, 1));
    const Tensor y = group_norm(x, gamma, beta, 2);
    EXPECT_EQ(y.shape(), shape);
    backward(y, Tensor::empty_like(y));
    EXPECT_EQ(grad_of(x).shape(), shape);
    EXPECT_EQ(grad_of(gamma).to_doubles(), std::vector<double>(static_cast<std::size_t>(c), 0.0));
    EXPECT_EQ(grad_of(beta).to_doubles(), std::vector<double>(static_cast<std::size_t>(c), 0.0));
  }
}

TEST(GroupNormArguments, Refused) {
  const char* const op = "group_norm";
  const Tensor x = Tensor::zeros({2, 4, 4, 6}), gamma = Tensor::full({6}, 1), beta = Tensor::zeros({6});
  for (const std::int64_t groups : {0, -1, 4, 12})
    refuses<ShapeError>(op, [&] { return group_norm(x, gamma, beta, groups); });
  refuses<ShapeError>(op, [&] { return group_norm(Tensor::zeros({6}), gamma, beta, 2); });
  refuses<ShapeError>(op, [&] { return group_norm(Tensor::full({}, 1), gamma, beta, 1); });
  refuses<ShapeError>(op, [&] { return group_norm(x, Tensor::full({2}, 1), beta, 2); });
  refuses<ShapeError>(op, [&] { return group_norm(x, gamma, Tensor::zeros({6, 1}), 2); });
  refuses<UsageError>(op, [&] { return group_norm(x, gamma, beta, 2, -1e-5); });
  refuses<UsageError>(op, [&] { return group_norm(x, gamma, beta, 2, std::numeric_limits<double>::quiet_NaN()); });
  refuses<UsageError>(op, [&] { return group_norm(Tensor(), gamma, beta, 2); });
  refuses<UsageError>(op, [&] { return group_norm(x, Tensor(), beta, 2); });
  refuses<UsageError>(op, [&] { return group_norm(x, gamma, Tensor(), 2); });
  refuses<DTypeError>(op, [&] { return group_norm(x.to(DType::i32), gamma, beta, 2); });
  refuses<DTypeError>(op, [&] { return group_norm(x, gamma.to(DType::f64), beta, 2); });
  refuses<DTypeError>(op, [&] { return group_norm(x.to(DType::bf16), gamma, beta.to(DType::bf16), 2); });
}

}  // namespace
}  // namespace hearth::test::group_norm_test
