// SPDX-License-Identifier: Apache-2.0
#include "ops/loss/mse.h"

#include <gtest/gtest.h>

#include <vector>

#include "autograd/grad_mode.h"
#include "tests/support/op_test.h"

namespace hearth::test {
namespace {

OP_TEST(MeanSquaredError) {
  for (const Shape& shape : {Shape{}, {1}, {3, 37}, {2, 5, 129}, {2, 40000}})
    check(
        [&](Draw& draw) {
          const Tensor x = draw.normal(shape);
          return mse(x, draw.normal(shape));
        },
        [&](Draw& draw) {
          const std::vector<double> x = draw.normal(shape).to_doubles(), target = draw.normal(shape).to_doubles();
          double sum = 0;
          for (std::size_t i = 0; i < x.size(); ++i) sum += (x[i] - target[i]) * (x[i] - target[i]);
          return std::vector<double>{sum / static_cast<double>(x.size())};
        },
        {.tolerance_scale = 2.0});
}

TEST(MeanSquaredErrorEdges, ResultIsWide) {
  const Tensor x = Tensor::full({100000}, 3.0, DType::f16);
  const Tensor loss = mse(x, Tensor::zeros({100000}, DType::f16));
  EXPECT_EQ(loss.dtype(), DType::f32);
  EXPECT_EQ(loss.item(), 9.0);
  const AutocastScope scope(DType::bf16);
  EXPECT_EQ(mse(x.to(DType::bf16), Tensor::zeros({100000})).item(), 9.0);
}

TEST(MeanSquaredErrorEdges, RefusesBadArguments) {
  const Tensor x = Tensor::zeros({2, 3});
  refuses<UsageError>("mse", [&] { return mse({}, x); });
  refuses<UsageError>("mse", [&] { return mse(x, {}); });
  refuses<ShapeError>("mse", [&] { return mse(x, Tensor::zeros({3, 2})); });
  refuses<ShapeError>("mse", [&] { return mse(x, Tensor::zeros({3})); });
  refuses<ShapeError>("mse", [&] { return mse(Tensor::zeros({0}), Tensor::zeros({0})); });
  refuses<DTypeError>("mse", [&] { return mse(x, x.to(DType::bf16)); });
  refuses<DTypeError>("mse", [&] { return mse(x.to(DType::i32), x.to(DType::i32)); });
}

}  // namespace
}  // namespace hearth::test
