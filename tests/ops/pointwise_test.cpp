// SPDX-License-Identifier: Apache-2.0
// Every row of the pointwise table: value beside <cmath>, gradient, special values, refusals.
#include "ops/pointwise/pointwise.h"

#include <cmath>

#include "autograd/backward.h"
#include "autograd/grad_mode.h"
#include "autograd/grad_state.h"
#include "ops/pointwise/functors.h"
#include "tests/support/op_test.h"

namespace hearth::test::pointwise_test {
namespace {

double naive_relu(double x) { return x > 0 ? x : 0; }
double naive_gelu(double x) { return 0.5 * x * std::erfc(-x / std::sqrt(2.0)); }
double naive_gelu_tanh(double x) {
  return 0.5 * x * (1 + std::tanh(std::sqrt(2 / M_PI) * (x + 0.044715 * std::pow(x, 3))));
}
double naive_silu(double x) { return x / (1 + std::exp(-x)); }
double naive_tanh(double x) { return (std::exp(2 * x) - 1) / (std::exp(2 * x) + 1); }
double naive_sigmoid(double x) { return 0.5 * (1 + std::tanh(0.5 * x)); }
double naive_exp(double x) { return std::pow(M_E, x); }
double naive_log(double x) { return std::log2(x) * std::log(2.0); }
double naive_sqrt(double x) { return std::pow(x, 0.5); }
double naive_square(double x) { return std::pow(x, 2); }
double naive_abs(double x) { return x < 0 ? -x : x; }
double naive_neg(double x) { return 0 - x; }
double naive_rsqrt(double x) { return std::pow(x, -0.5); }
double naive_sin(double x) { return std::cos(x - M_PI / 2); }
double naive_cos(double x) { return 1 - 2 * std::pow(std::sin(x / 2), 2); }
double naive_erf(double x) { return 1 - std::erfc(x); }

// Slopes from a result that was rounded to 16 bits, such as 1 - y^2, cancel where the function saturates.
template <class Functor>
const CheckOptions tolerance{.tolerance_scale = Functor::keeps == functors::Keeps::y ? 4.0 : 1.0};

const Shape shapes[] = {{}, {0, 3}, {1}, {37}, {3, 129}, {2, 7, 7, 48}, {20000}};

#define HEARTH_TEST_POINTWISE(name, domain)                                              \
  OP_TEST(Pointwise_##name) {                                                            \
    for (const Shape& shape : shapes) {                                                  \
      check([&](Draw& draw) { return name(draw.domain(shape)); },                        \
            [&](Draw& draw) {                                                            \
              std::vector<double> values = draw.domain(shape).to_doubles();              \
              for (double& value : values) value = naive_##name(value);                  \
              return values;                                                             \
            },                                                                           \
            tolerance<functors::name>);                                                  \
    }                                                                                    \
  }                                                                                      \
  TEST(PointwiseRefusal, name) {                                                         \
    refuses<UsageError>(#name, [] { return name(Tensor()); });                           \
    refuses<DTypeError>(#name, [] { return name(Tensor::zeros({2}, DType::i32)); });     \
    refuses<DTypeError>(#name, [] { return name(Tensor::zeros({2}, DType::i64)); });     \
    refuses<DTypeError>(#name, [] { return name(Tensor::zeros({0}, DType::u8)); });      \
    refuses<DTypeError>(#name, [] { return name(Tensor::zeros({2}, DType::boolean)); }); \
  }
HEARTH_POINTWISE(HEARTH_TEST_POINTWISE)
#undef HEARTH_TEST_POINTWISE

TEST(Pointwise, SpecialValuesGiveWhatCmathGives) {
  const float inf = INFINITY;
  const auto at = [](Tensor (*f)(const Tensor&), float x) { return f(Tensor::of<float>({1}, {x})).item(); };
  EXPECT_TRUE(std::isnan(at(relu, NAN)));
  EXPECT_TRUE(std::isnan(at(exp, NAN)));
  EXPECT_TRUE(std::isnan(at(log, -1.0f)));
  EXPECT_TRUE(std::isnan(at(sqrt, -1.0f)));
  EXPECT_EQ(at(exp, -inf), 0.0);
  EXPECT_EQ(at(exp, 100.0f), inf);
  EXPECT_EQ(at(log, 0.0f), -inf);
  EXPECT_EQ(at(tanh, 50.0f), 1.0);
  EXPECT_EQ(at(sigmoid, -200.0f), 0.0);
  EXPECT_EQ(at(relu, -inf), 0.0);
  EXPECT_EQ(at(gelu_tanh, 1e30f), 1e30f);
}

TEST(Pointwise, ReluPassesTheGradientOfWhatIsNoNumber) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const Tensor x = requires_grad(Tensor::of<double>({4}, {nan, -1, 0, 2}));
  backward(relu(x), Tensor::of<double>({4}, {1, 2, 3, 4}));
  EXPECT_EQ(grad_of(x).to_doubles(), (std::vector<double>{1, 0, 0, 4})) << "as PyTorch";
}

TEST(Pointwise, SlopesStayFiniteFarOut) {
  for (Tensor (*f)(const Tensor&) : {gelu, gelu_tanh, silu, relu, tanh, sigmoid}) {
    const Tensor x = requires_grad(Tensor::of<float>({6}, {-INFINITY, -1e30f, -200.0f, 200.0f, 1e30f, INFINITY}));
    backward(f(x), Tensor::full({6}, 1.0));
    for (const double slope : grad_of(x).to_doubles()) EXPECT_TRUE(slope == 0.0 || slope == 1.0) << slope;
  }
}

TEST(Pointwise, ExpAndLogWidenUnderAutocast) {
  const AutocastScope scope(DType::bf16);
  const Tensor x = Tensor::full({3}, 1.5, DType::bf16);
  EXPECT_EQ(exp(x).dtype(), DType::f32);
  EXPECT_EQ(log(x).dtype(), DType::f32);
  EXPECT_EQ(relu(x).dtype(), DType::bf16);
}

TEST(Pointwise, BackwardRefusesASavedTensorThatWasOverwritten) {
  const Tensor x = requires_grad(Tensor::full({3}, 2.0));
  const Tensor y = square(x);
  x.fill_(5.0);
  EXPECT_THROW(backward(y, Tensor::full({3}, 1.0)), UsageError);
}

}  // namespace
}  // namespace hearth::test::pointwise_test
