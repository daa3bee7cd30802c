// SPDX-License-Identifier: Apache-2.0
// Pointwise functions with numbers: value beside <cmath>, gradient, special values, refusals.
#include <cmath>
#include <functional>

#include "autograd/backward.h"
#include "autograd/grad_mode.h"
#include "autograd/grad_state.h"
#include "ops/pointwise/pointwise.h"
#include "tests/support/op_test.h"

namespace hearth::test::parametric_test {
namespace {

const Shape shapes[] = {{}, {0, 3}, {1}, {37}, {3, 129}, {2, 7, 7, 48}, {20000}};

void check_function(const std::function<Tensor(const Tensor&)>& f, const std::function<double(double)>& naive) {
  for (const Shape& shape : shapes)
    check([&](Draw& draw) { return f(draw.away_from_zero(shape)); },
          [&](Draw& draw) {
            std::vector<double> values = draw.away_from_zero(shape).to_doubles();
            for (double& value : values) value = naive(value);
            return values;
          });
}

OP_TEST(LeakyRelu) {
  check_function([](const Tensor& x) { return leaky_relu(x, 0.2); }, [](double x) { return x > 0 ? x : 0.2 * x; });
}

OP_TEST(Elu) {
  check_function([](const Tensor& x) { return elu(x, 0.7); },
                 [](double x) { return x > 0 ? x : 0.7 * (std::exp(x) - 1); });
}

OP_TEST(Softplus) {
  check_function([](const Tensor& x) { return softplus(x); }, [](double x) { return std::log(1 + std::exp(x)); });
  check_function([](const Tensor& x) { return softplus(x, 3.0); },
                 [](double x) { return std::log(1 + std::exp(3 * x)) / 3; });
}

// 1/64 apart and off by 1/128: no value is near a bound.
OP_TEST(Clamp) {
  for (const Shape& shape : {Shape{1}, {37}, {3, 129}})
    check([&](Draw& draw) { return clamp(draw.distinct(shape), -0.5078125, 1.2578125); },
          [&](Draw& draw) {
            std::vector<double> values = draw.distinct(shape).to_doubles();
            for (double& value : values) value = std::max(-0.5078125, std::min(value, 1.2578125));
            return values;
          });
  check([&](Draw& draw) { return clamp(draw.away_from_zero({50}), 0.0); });
}

TEST(Parametric, SpecialValues) {
  const auto at = [](const Tensor& y) { return y.item(); };
  const Tensor nan = Tensor::full({1}, NAN), inf = Tensor::full({1}, INFINITY), low = Tensor::full({1}, -INFINITY);
  EXPECT_TRUE(std::isnan(at(leaky_relu(nan))));
  EXPECT_TRUE(std::isnan(at(elu(nan))));
  EXPECT_TRUE(std::isnan(at(softplus(nan))));
  EXPECT_TRUE(std::isnan(at(clamp(nan, 0, 1))));
  EXPECT_EQ(at(softplus(inf)), INFINITY);
  EXPECT_EQ(at(softplus(low)), 0.0);
  EXPECT_EQ(at(softplus(Tensor::full({1}, 1e4))), 1e4);
  EXPECT_NEAR(at(softplus(Tensor::full({1}, -30.0))) / std::exp(-30.0), 1.0, 1e-6);
  EXPECT_EQ(at(elu(low, 0.5)), -0.5);
  EXPECT_EQ(at(clamp(inf, -2, 3)), 3.0);
}

TEST(Parametric, SlopesAtTheKinks) {
  const Tensor x = requires_grad(Tensor::of<float>({3}, {-1, 0, 2}));
  backward(clamp(x, -1, 2), Tensor::full({3}, 1.0));
  EXPECT_EQ(grad_of(x).to_doubles(), (std::vector<double>{1, 1, 1}));
  const Tensor zero = requires_grad(Tensor::zeros({1}));
  backward(leaky_relu(zero, 0.25), Tensor::full({1}, 1.0));
  EXPECT_EQ(grad_of(zero).item(), 0.25);
}

TEST(ParametricRefusal, EveryFunction) {
  const std::pair<const char*, std::function<Tensor(const Tensor&)>> functions[] = {
      {"leaky_relu", [](const Tensor& x) { return leaky_relu(x); }},
      {"elu", [](const Tensor& x) { return elu(x); }},
      {"softplus", [](const Tensor& x) { return softplus(x); }},
      {"clamp", [](const Tensor& x) { return clamp(x, 0, 1); }},
  };
  for (const auto& [name, f] : functions) {
    refuses<UsageError>(name, [&] { return f(Tensor()); });
    for (const DType dtype : {DType::i32, DType::i64, DType::u8, DType::boolean})
      refuses<DTypeError>(name, [&] { return f(Tensor::zeros({2}, dtype)); });
  }
  const Tensor x = Tensor::zeros({2});
  refuses<UsageError>("leaky_relu", [&] { return leaky_relu(x, NAN); });
  refuses<UsageError>("elu", [&] { return elu(x, INFINITY); });
  refuses<UsageError>("softplus", [&] { return softplus(x, 0.0); });
  refuses<UsageError>("clamp", [&] { return clamp(x, 1, 0); });
  refuses<UsageError>("clamp", [&] { return clamp(x, NAN, 0); });
}

}  // namespace
}  // namespace hearth::test::parametric_test
