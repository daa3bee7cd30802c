// SPDX-License-Identifier: Apache-2.0
// Broadcasting arithmetic, operators and casts.
#include "ops/pointwise/binary.h"

#include <cmath>
#include <functional>
#include <limits>

#include "autograd/backward.h"
#include "autograd/grad_mode.h"
#include "autograd/grad_state.h"
#include "ops/pointwise/cast.h"
#include "ops/pointwise/operators.h"
#include "tests/support/op_test.h"

namespace hearth::test::binary_test {
namespace {

struct Pair {
  Shape a, b;
};

// Same shape, scalars, last-axis vectors, per-image, middle axes, mutual broadcasting, empty, beyond one block.
const Pair pairs[] = {
    {{3, 37}, {3, 37}},
    {{}, {}},
    {{5, 7}, {}},
    {{}, {5, 7}},
    {{4, 5, 48}, {48}},
    {{48}, {4, 5, 48}},
    {{2, 3, 3, 5}, {2, 1, 1, 5}},
    {{2, 7, 3}, {2, 1, 3}},
    {{4, 1}, {1, 9}},
    {{3, 1, 5, 1}, {2, 1, 6}},
    {{0, 4}, {1, 4}},
    {{0, 4}, {4}},
    {{6, 3}, {6, 1}},
    {{131, 257}, {131, 257}},
};

/// The value at every position of the broadcast shape, by index arithmetic.
std::vector<double> naive(const Tensor& a, const Tensor& b, const std::function<double(double, double)>& f) {
  const Shape shape = broadcast_shapes("naive", a.shape(), b.shape());
  const std::vector<double> va = a.to_doubles(), vb = b.to_doubles();
  std::vector<double> result(static_cast<std::size_t>(shape.size()));
  const auto place = [&](const Shape& own, std::int64_t flat) {
    std::int64_t at = 0, step = 1;
    for (int axis = shape.rank() - 1; axis >= 0; --axis) {
      const std::int64_t index = flat % shape[axis];
      flat /= shape[axis];
      const int k = axis - (shape.rank() - own.rank());
      if (k < 0) continue;
      at += own[k] == 1 ? 0 : index * step;
      step *= own[k];
    }
    return static_cast<std::size_t>(at);
  };
  for (std::size_t i = 0; i < result.size(); ++i) {
    const auto flat = static_cast<std::int64_t>(i);
    result[i] = f(va[place(a.shape(), flat)], vb[place(b.shape(), flat)]);
  }
  return result;
}

/// A gradient summed over broadcast axes has terms that were rounded to 16 bits and may cancel to a fraction of them.
bool cancels(const Pair& pair) { return size_of(site_dtype()) == 2 && !(pair.a == pair.b); }

using Operation = Tensor (*)(const Tensor&, const Tensor&);

void check_operation(Operation operation, const std::function<double(double, double)>& f, bool divides) {
  for (const Pair& pair : pairs) {
    const auto draw_b = [&](Draw& draw) { return divides ? draw.positive(pair.b) : draw.normal(pair.b); };
    check(
        [&](Draw& draw) {
          const Tensor a = draw.normal(pair.a);
          return operation(a, draw_b(draw));
        },
        [&](Draw& draw) {
          const Tensor a = draw.normal(pair.a);
          return naive(a, draw_b(draw), f);
        },
        {.tolerance_scale = cancels(pair) ? 50.0 : 1.0});
  }
}

OP_TEST(Add) {
  check_operation(
      add, [](double a, double b) { return a + b; }, false);
}
OP_TEST(Sub) {
  check_operation(
      sub, [](double a, double b) { return a - b; }, false);
}
OP_TEST(Mul) {
  check_operation(
      mul, [](double a, double b) { return a * b; }, false);
}
OP_TEST(Div) {
  check_operation(
      div, [](double a, double b) { return a / b; }, true);
}

// Powers of positive numbers; of slopes the terms b a^(b-1) and a^b log a are larger than the value.
OP_TEST(Pow) {
  for (const Pair& pair : pairs) {
    check(
        [&](Draw& draw) {
          const Tensor a = draw.positive(pair.a);
          return pow(a, draw.normal(pair.b));
        },
        [&](Draw& draw) {
          const Tensor a = draw.positive(pair.a);
          return naive(a, draw.normal(pair.b), [](double x, double y) { return std::exp2(y * std::log2(x)); });
        },
        {.tolerance_scale = cancels(pair) ? 50.0 : 2.0});
  }
}

// Values 1/64 apart in one draw, and 1/128 off in the other, so that no tie comes near a step of the oracle.
void check_extreme(Operation operation, bool largest) {
  for (const Pair& pair : pairs) {
    if (pair.a.size() > 400) continue;
    const auto shifted = [](const Tensor& x) { return mul(x, 0.75); };
    check(
        [&](Draw& draw) {
          const Tensor a = draw.away_from_zero(pair.a);
          return operation(a, shifted(draw.distinct(pair.b)));
        },
        [&](Draw& draw) {
          const Tensor a = draw.away_from_zero(pair.a);
          return naive(a, shifted(draw.distinct(pair.b)),
                       [&](double x, double y) { return largest ? std::max(x, y) : std::min(x, y); });
        });
  }
}

OP_TEST(Maximum) { check_extreme(maximum, true); }
OP_TEST(Minimum) { check_extreme(minimum, false); }

OP_TEST(ArithmeticWithNumbers) {
  for (const Shape& shape : {Shape{}, {3, 37}, {0, 2}}) {
    check([&](Draw& draw) { return add(draw.normal(shape), 1.25); });
    check([&](Draw& draw) { return sub(draw.normal(shape), 0.3); });
    check([&](Draw& draw) { return sub(0.3, draw.normal(shape)); });
    check([&](Draw& draw) { return mul(draw.normal(shape), -1.7); });
    check([&](Draw& draw) { return div(draw.normal(shape), 0.7); });
    check([&](Draw& draw) { return div(0.7, draw.positive(shape)); });
    check([&](Draw& draw) { return pow(draw.away_from_zero(shape), 3.0); });
    check([&](Draw& draw) { return pow(draw.positive(shape), -0.5); });
    check([&](Draw& draw) { return pow(1.5, draw.normal(shape)); });
    check([&](Draw& draw) { return maximum(draw.away_from_zero(shape), 0.05); });
    check([&](Draw& draw) { return minimum(draw.away_from_zero(shape), -0.05); });
  }
}

OP_TEST(Operators) {
  check([](Draw& draw) {
    const Tensor a = draw.normal({3, 5});
    const Tensor b = draw.positive({5});
    return -(2.0 * a + b) / b * 0.5 - (1.0 - a) * (3.0 / b) + (a - 1.0) / 4.0 + (0.5 + a * a);
  });
}

OP_TEST(ATensorUsedTwiceGetsBothGradients) {
  check([](Draw& draw) {
    const Tensor a = draw.normal({4, 3});
    return mul(a, add(a, a));
  });
}

TEST(Binary, NumbersKeepTheirPrecisionBesideHalfTypes) {
  const Tensor x = Tensor::full({1}, 256.0, DType::bf16);
  // 1.00390625 is not a bf16; rounded first it would give 256.
  EXPECT_EQ(mul(x, 1.00390625).item(), Tensor::full({1}, 257.0, DType::bf16).item());
  EXPECT_EQ(mul(Tensor::full({1}, 256.0, DType::f32), 1.00390625).item(), 257.0);
  EXPECT_EQ(sub(mul(Tensor::full({1}, 100.0, DType::bf16), 0.1), 10.0).item(), 0.0);
}

TEST(Binary, IntegersWrapAndCompare) {
  const std::int32_t top = std::numeric_limits<std::int32_t>::max();
  const Tensor a = Tensor::of<std::int32_t>({2}, {top, -7});
  EXPECT_EQ(add(a, 1.0).data<std::int32_t>()[0], std::numeric_limits<std::int32_t>::min());
  EXPECT_EQ(mul(a, 2.0).data<std::int32_t>()[0], -2);
  EXPECT_EQ(maximum(a, 0.0).data<std::int32_t>()[1], 0);
  const std::int64_t large = (std::int64_t{1} << 53) + 1;
  const Tensor b = Tensor::of<std::int64_t>({1}, {large});
  EXPECT_EQ(sub(b, Tensor::of<std::int64_t>({1}, {1})).data<std::int64_t>()[0], large - 1);
  EXPECT_FALSE(needs_grad(add(b, b)));
}

TEST(Binary, PowersAtZero) {
  const Tensor a = requires_grad(Tensor::of<float>({3}, {0, 0, -2})),
               b = requires_grad(Tensor::of<float>({3}, {0, 2, 3}));
  const Tensor y = pow(a, b);
  EXPECT_EQ(y.to_doubles(), (std::vector<double>{1, 0, -8}));
  backward(y, Tensor::full({3}, 1.0));
  EXPECT_EQ(grad_of(a).to_doubles(), (std::vector<double>{0, 0, 12}));
  EXPECT_EQ(grad_of(b).to_doubles()[0], 0.0);
  EXPECT_EQ(grad_of(b).to_doubles()[1], 0.0);
  const AutocastScope scope(DType::f16);
  EXPECT_EQ(pow(Tensor::full({1}, 300.0, DType::f16), 2.0).item(), 9e4);
}

TEST(BinaryRefusal, Pow) {
  const Tensor x = Tensor::zeros({2, 3});
  refuses<UsageError>("pow", [&] { return pow(x, Tensor()); });
  refuses<UsageError>("pow", [&] { return pow(Tensor(), 2.0); });
  refuses<ShapeError>("pow", [&] { return pow(x, Tensor::zeros({2})); });
  refuses<DTypeError>("pow", [&] { return pow(x, Tensor::zeros({2, 3}, DType::f64)); });
  refuses<DTypeError>("pow", [&] { return pow(Tensor::zeros({2}, DType::i32), 2.0); });
  refuses<DTypeError>("pow", [&] { return pow(2.0, Tensor::zeros({2}, DType::i64)); });
}

TEST(Binary, NotANumberWinsTheExtremes) {
  const Tensor odd = Tensor::full({1}, NAN), one = Tensor::full({1}, 1.0);
  for (Operation f : {static_cast<Operation>(maximum), static_cast<Operation>(minimum)}) {
    EXPECT_TRUE(std::isnan(f(odd, one).item()));
    EXPECT_TRUE(std::isnan(f(one, odd).item()));
  }
}

TEST(Binary, OfEqualsTheGradientGoesToTheFirst) {
  const Tensor a = requires_grad(Tensor::full({2}, 3.0)), b = requires_grad(Tensor::full({2}, 3.0));
  backward(maximum(a, b), Tensor::full({2}, 1.0));
  EXPECT_EQ(grad_of(a).to_doubles(), (std::vector<double>{1, 1}));
  EXPECT_EQ(grad_of(b).to_doubles(), (std::vector<double>{0, 0}));
}

TEST(Binary, TheGradientGoesToNotANumberThatWins) {
  for (Operation f : {static_cast<Operation>(maximum), static_cast<Operation>(minimum)}) {
    const Tensor a = requires_grad(Tensor::of<float>({3}, {0, NAN, NAN}));
    const Tensor b = requires_grad(Tensor::of<float>({3}, {NAN, 0, NAN}));
    backward(f(a, b), Tensor::full({3}, 1.0));
    EXPECT_EQ(grad_of(a).to_doubles(), (std::vector<double>{0, 1, 1}));
    EXPECT_EQ(grad_of(b).to_doubles(), (std::vector<double>{1, 0, 0}));
  }
}

TEST(BinaryRefusal, EveryOperation) {
  const std::pair<const char*, Operation> operations[] = {{"add", add}, {"sub", sub},         {"mul", mul},
                                                          {"div", div}, {"maximum", maximum}, {"minimum", minimum}};
  const Tensor x = Tensor::zeros({2, 3});
  for (const auto& [name, f] : operations) {
    refuses<UsageError>(name, [&] { return f(x, Tensor()); });
    refuses<UsageError>(name, [&] { return f(Tensor(), x); });
    refuses<ShapeError>(name, [&] { return f(x, Tensor::zeros({2})); });
    refuses<ShapeError>(name, [&] { return f(x, Tensor::zeros({0})); });
    refuses<ShapeError>(name, [&] { return f(x, Tensor::zeros({3, 2})); });
    refuses<DTypeError>(name, [&] { return f(x, Tensor::zeros({2, 3}, DType::f64)); });
    refuses<DTypeError>(name,
                        [&] { return f(Tensor::zeros({2}, DType::boolean), Tensor::zeros({2}, DType::boolean)); });
    refuses<DTypeError>(name, [&] { return f(Tensor::zeros({2}, DType::u8), Tensor::zeros({2}, DType::u8)); });
  }
  // Extents of 2^32 that only meet in the broadcast shape.
  const std::int64_t big = std::int64_t{1} << 32;
  const Tensor one = Tensor::zeros({1});
  const Tensor column = Tensor::view(one.storage(), {big, 1}, {0, 0}, 0, DType::f32, {});
  const Tensor row = Tensor::view(one.storage(), {1, big}, {0, 0}, 0, DType::f32, {});
  EXPECT_THROW(add(column, row), ShapeError);
}

TEST(BinaryRefusal, Numbers) {
  const Tensor whole = Tensor::zeros({2}, DType::i32);
  refuses<UsageError>("add", [&] { return add(whole, 0.5); });
  refuses<UsageError>("mul", [&] { return mul(whole, 0x1p31); });
  refuses<UsageError>("sub", [&] { return sub(whole, NAN); });
  refuses<DTypeError>("div", [&] { return div(whole, 2.0); });
  refuses<DTypeError>("div", [&] { return div(1.0, whole); });
  refuses<UsageError>("add", [&] { return add(Tensor(), 1.0); });
}

OP_TEST(Cast) {
  check([](Draw& draw) { return cast(mul(draw.normal({3, 5}), 2.0), DType::f64); });
  if (site_dtype() != DType::f64) check([](Draw& draw) { return cast(draw.normal({3, 5}), DType::f32); });
}

TEST(Cast, ConvertsAsDocumentedAndRefuses) {
  const Tensor x = Tensor::of<float>({4}, {1.9f, -1.9f, 3e10f, NAN});
  const Tensor whole = cast(x, DType::i32);
  EXPECT_EQ(whole.data<std::int32_t>()[0], 1);
  EXPECT_EQ(whole.data<std::int32_t>()[1], -1);
  EXPECT_EQ(whole.data<std::int32_t>()[2], std::numeric_limits<std::int32_t>::max());
  EXPECT_EQ(whole.data<std::int32_t>()[3], 0);
  EXPECT_FALSE(needs_grad(cast(requires_grad(x), DType::i32)));
  refuses<UsageError>("cast", [] { return cast(Tensor(), DType::f32); });
}

}  // namespace
}  // namespace hearth::test::binary_test
