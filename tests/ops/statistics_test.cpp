// SPDX-License-Identifier: Apache-2.0
#include "ops/reduce/statistics.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "autograd/backward.h"
#include "autograd/grad_state.h"
#include "core/creation.h"
#include "ops/ops.h"
#include "tests/support/error_message.h"
#include "tests/support/op_test.h"

namespace hearth::test::statistics_test {
namespace {

using Values = std::vector<double>;
constexpr double infinity = std::numeric_limits<double>::infinity();

OP_TEST(Variance) {
  for (const double correction : {0.0, 1.0}) {
    check([&](Draw& draw) { return var(draw.normal({3, 37}), {1}, {.correction = correction}); });
    check([&](Draw& draw) {
      return var(draw.normal({4, 5, 7}), {0, -1}, {.correction = correction, .keep_dims = true});
    });
  }
  check([](Draw& draw) { return var(draw.normal({29})); });
}

OP_TEST(LogSumExp) {
  check([](Draw& draw) { return logsumexp(draw.normal({3, 37}), {1}); });
  check([](Draw& draw) { return logsumexp(draw.normal({4, 5, 7}, 3), {0, 2}, true); });
  check([](Draw& draw) { return logsumexp(draw.normal({5, 1}), {1}); });
}

TEST(Statistics, AreThoseOfPyTorch) {
  const Tensor x = tensor({{1, 2, 4}, {0, 0, 6}});
  EXPECT_NEAR(var(x, {1}).to_doubles()[0], 7.0 / 3, 1e-6);
  EXPECT_NEAR(var(x, {1}, {.correction = 0}).to_doubles()[1], 8, 1e-6);
  EXPECT_EQ(var(x, {1}, {.keep_dims = true}).shape(), (Shape{2, 1}));
  EXPECT_TRUE(std::isnan(var(tensor({3})).item())) << "0 / 0, as in PyTorch";
  EXPECT_EQ(var(tensor({1, 3}), {}, {.correction = 2}).item(), infinity);
  // Their sum of squares is no f16.
  EXPECT_NEAR(var(tensor({-200, 200}).to(DType::f16), {}, {.correction = 0}).item(), 40000, 32);
  EXPECT_NEAR(var(tensor({-240, 240, -240, 240}).to(DType::f16), {}, {.correction = 0}).item(), 57600, 32);
  // Far from zero and beyond what exp() can hold.
  EXPECT_NEAR(logsumexp(tensor({1000, 1000}), {0}).item(), 1000 + std::log(2.0), 1e-4);
  EXPECT_NEAR(logsumexp(tensor({-1000, -1000}), {0}).item(), -1000 + std::log(2.0), 1e-4);
  EXPECT_EQ(logsumexp(tensor({-infinity, -infinity}), {0}).item(), -infinity);
  const Tensor masked = requires_grad(tensor({{-infinity, -infinity}, {0, 0}}));
  backward(sum(logsumexp(masked, {1})[1]));
  EXPECT_EQ(grad_of(masked).to_doubles(), (Values{0, 0, 0.5, 0.5}));
  EXPECT_EQ(logsumexp(Tensor::zeros({2, 0}), {1}).to_doubles(), (Values{-infinity, -infinity}));
  EXPECT_EQ(logsumexp(Tensor::zeros({0, 3}), {1}, true).shape(), (Shape{0, 1}));
  EXPECT_EQ(logsumexp(tensor({infinity, 1}), {0}).item(), infinity);
  EXPECT_NEAR(logsumexp(tensor({-infinity, 1}), {0}).item(), 1, 1e-6);
}

TEST(Statistics, VarianceOverNoElementsIsNaN) {
  const Tensor none = Tensor::zeros({0, 3});
  const auto is_nan = [](const Tensor& x) {
    const Values values = x.to_doubles();
    return !values.empty() && std::all_of(values.begin(), values.end(), [](double v) { return std::isnan(v); });
  };
  EXPECT_TRUE(is_nan(var(none, {0})));
  EXPECT_TRUE(is_nan(var(none)));
  EXPECT_TRUE(is_nan(var(none, {0}, {.correction = 0})));
  EXPECT_TRUE(is_nan(var(none.to(DType::f16), {0})));
  EXPECT_EQ(var(none, {0}).shape(), Shape{3});
  EXPECT_EQ(var(none, {0}, {.keep_dims = true}).shape(), (Shape{1, 3}));
  EXPECT_EQ(var(none, {1}).shape(), Shape{0});
  EXPECT_EQ(var(none.to(DType::f16), {0}).dtype(), DType::f16);
  EXPECT_TRUE(is_nan(var(tensor({2, 2}), {0}, {.correction = 2}))) << "0 / 0";
}

TEST(Statistics, RefuseWhatDoesNotFit) {
  const Tensor x = Tensor::zeros({2, 3}), whole = Tensor::zeros({2, 3}, DType::i64);
  EXPECT_PRED2(contains, error_message<ShapeError>([&] { (void)var(x, {2}); }), "var: axis 2");
  EXPECT_PRED2(contains, error_message<ShapeError>([&] { (void)logsumexp(x, {2}); }), "logsumexp: axis 2");
  EXPECT_PRED2(contains, error_message<ShapeError>([&] {
                 (void)var(x, {0, 0});
               }),
               "var: axis 0 of [2, 3] is given twice");
  EXPECT_THROW((void)var(whole), DTypeError);
  EXPECT_THROW((void)var(x, {}, {.correction = NAN}), ShapeError);
  EXPECT_THROW((void)var(Tensor()), UsageError);
  EXPECT_THROW((void)logsumexp(x, {-3}), ShapeError);
  EXPECT_PRED2(contains, error_message<ShapeError>([&] { (void)logsumexp(x, {1, -1}); }), "logsumexp: axis -1");
  EXPECT_THROW((void)logsumexp(whole, {0}), DTypeError);
  EXPECT_THROW((void)logsumexp(Tensor(), {0}), UsageError);
}

TEST(OneHot, IsThatOfPyTorch) {
  const Tensor y = one_hot(tensor({2, 0}).to(DType::i64), 3);
  EXPECT_EQ(y.dtype(), DType::i64);
  EXPECT_EQ(y.to_doubles(), (Values{0, 0, 1, 1, 0, 0}));
  EXPECT_EQ(one_hot(Tensor::zeros({2, 5}, DType::i32), 4).shape(), (Shape{2, 5, 4}));
  EXPECT_EQ(one_hot(Tensor::zeros({0}, DType::i64), 4).shape(), (Shape{0, 4}));
  EXPECT_EQ(one_hot(Tensor::zeros({}, DType::i64), 2).to_doubles(), (Values{1, 0}));
}

TEST(OneHot, RefusesWhatDoesNotFit) {
  const Tensor labels = tensor({2, 0}).to(DType::i64);
  EXPECT_PRED2(contains, error_message<IndexError>([&] { (void)one_hot(labels, 2); }), "label 2 of 2 classes");
  EXPECT_THROW((void)one_hot(tensor({-1}).to(DType::i64), 2), IndexError);
  EXPECT_THROW((void)one_hot(labels, 0), ShapeError);
  EXPECT_THROW((void)one_hot(labels, -3), ShapeError);
  const std::int64_t largest = std::numeric_limits<std::int64_t>::max();
  for (const std::int64_t classes : {largest, largest / 8, std::int64_t{1} << 53})
    EXPECT_PRED2(contains, error_message<ShapeError>([&] { (void)one_hot(labels, classes); }), "one_hot: ");
  EXPECT_THROW((void)one_hot(tensor({1.0}), 3), DTypeError);
  EXPECT_THROW((void)one_hot(Tensor(), 3), UsageError);
}

}  // namespace
}  // namespace hearth::test::statistics_test
