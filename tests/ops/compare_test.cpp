// SPDX-License-Identifier: Apache-2.0
// Comparisons of all element types, where and masked_fill.
#include "ops/pointwise/compare.h"

#include <cmath>
#include <functional>

#include "autograd/backward.h"
#include "autograd/grad_mode.h"
#include "autograd/grad_state.h"
#include "ops/pointwise/cast.h"
#include "ops/shape/view.h"
#include "tests/support/op_test.h"

namespace hearth::test::compare_test {
namespace {

struct Pair {
  Shape a, b;
};

const Pair pairs[] = {{{3, 37}, {3, 37}}, {{}, {}},           {{5, 7}, {}},
                      {{}, {5, 7}},       {{4, 5, 48}, {48}}, {{2, 7, 3}, {2, 1, 3}},
                      {{4, 1}, {1, 9}},   {{0, 4}, {1, 4}},   {{131, 257}, {131, 257}}};

using Operation = Tensor (*)(const Tensor&, const Tensor&);
struct Comparing {
  Operation operation;
  std::function<bool(double, double)> naive;
};
const Comparing comparings[] = {
    {equal, [](double a, double b) { return a == b; }},
    {not_equal, [](double a, double b) { return a != b; }},
    {less, [](double a, double b) { return a < b; }},
    {less_equal, [](double a, double b) { return a <= b; }},
    {greater, [](double a, double b) { return a > b; }},
    {greater_equal, [](double a, double b) { return a >= b; }},
    {logical_and, [](double a, double b) { return a != 0 && b != 0; }},
    {logical_or, [](double a, double b) { return a != 0 || b != 0; }},
};

std::vector<double> repeated(const Tensor& x, const Shape& shape) { return expand(x.detach(), shape).to_doubles(); }

// Few values, so that many are equal.
Tensor coarse(Draw& draw, const Shape& shape) { return cast(draw.integers(shape, 4), draw.dtype()); }

OP_TEST(Compare) {
  for (const Pair& pair : pairs)
    for (const Comparing& c : comparings)
      check(
          [&](Draw& draw) {
            const Tensor a = coarse(draw, pair.a);
            return c.operation(a, coarse(draw, pair.b));
          },
          [&](Draw& draw) {
            const Shape shape = broadcast_shapes("naive", pair.a, pair.b);
            std::vector<double> a = repeated(coarse(draw, pair.a), shape);
            const std::vector<double> b = repeated(coarse(draw, pair.b), shape);
            for (std::size_t i = 0; i < a.size(); ++i) a[i] = c.naive(a[i], b[i]);
            return a;
          },
          {.no_gradient = true});
}

OP_TEST(CompareIntegersAndNumbers) {
  for (const DType dtype : {DType::i32, DType::i64, DType::u8, DType::boolean})
    check(
        [&](Draw& draw) {
          return less(draw.integers({3, 50}, 2, dtype), 1.0);
        },
        [&](Draw& draw) {
          std::vector<double> a = draw.integers({3, 50}, 2, dtype).to_doubles();
          for (double& value : a) value = value < 1;
          return a;
        },
        {.no_gradient = true});
  check(
      [](Draw& draw) {
        return greater(draw.normal({3, 50}), 0.5);
      },
      [](Draw& draw) {
        std::vector<double> a = draw.normal({3, 50}).to_doubles();
        for (double& value : a) value = value > 0.5;
        return a;
      },
      {.no_gradient = true});
}

Tensor mask(Draw& draw, const Shape& shape) { return draw.integers(shape, 2, DType::boolean); }

OP_TEST(Where) {
  for (const Pair& pair : pairs) {
    for (const Shape& condition : {pair.a, pair.b}) {
      const Shape shape = broadcast_shapes("naive", pair.a, pair.b);
      check(
          [&](Draw& draw) {
            const Tensor chosen = mask(draw, condition), a = draw.normal(pair.a);
            return where(chosen, a, draw.normal(pair.b));
          },
          [&](Draw& draw) {
            const std::vector<double> chosen = repeated(mask(draw, condition), shape);
            std::vector<double> a = repeated(draw.normal(pair.a), shape);
            const std::vector<double> b = repeated(draw.normal(pair.b), shape);
            for (std::size_t i = 0; i < a.size(); ++i) a[i] = chosen[i] != 0 ? a[i] : b[i];
            return a;
          },
          // Gradients of repeated operands are sums of terms that were rounded to 16 bits and may cancel.
          {.tolerance_scale = pair.a == pair.b ? 1.0 : 50.0});
    }
  }
}

OP_TEST(WhereWithNumbers) {
  check([](Draw& draw) {
    const Tensor chosen = mask(draw, {4, 1, 9});
    return where(chosen, draw.normal({4, 5, 9}), -2.5);
  });
  check([](Draw& draw) {
    const Tensor chosen = mask(draw, {4, 5, 9});
    return where(chosen, 0.75, draw.normal({4, 5, 9}));
  });
  check([](Draw& draw) {
    const Tensor x = draw.normal({4, 5, 9});
    return masked_fill(x, mask(draw, {5, 1}), 7.0);
  });
}

TEST(Compare, NaNIsOnlyUnequal) {
  const Tensor nan = Tensor::full({1}, NAN);
  EXPECT_EQ(equal(nan, nan).item(), 0.0);
  EXPECT_EQ(not_equal(nan, nan).item(), 1.0);
  EXPECT_EQ(less_equal(nan, 0.0).item(), 0.0);
  EXPECT_EQ(greater(nan, 0.0).item(), 0.0);
  EXPECT_EQ(equal(nan, nan).dtype(), DType::boolean);
}

TEST(Compare, LargeIntegersKeepTheirBits) {
  const std::int64_t large = (std::int64_t{1} << 53) + 1;
  const Tensor a = Tensor::of<std::int64_t>({2}, {large, large - 1}), b = Tensor::of<std::int64_t>({}, {large});
  EXPECT_EQ(equal(a, b).to_doubles(), (std::vector<double>{1, 0}));
}

TEST(Compare, WhereTakesEveryType) {
  for (const DType dtype :
       {DType::f32, DType::f64, DType::f16, DType::bf16, DType::i32, DType::i64, DType::u8, DType::boolean}) {
    const Tensor a = Tensor::full({3}, 1, dtype), chosen = Tensor::of<bool>({3}, {true, false, true});
    EXPECT_EQ(where(chosen, a, 0.0).to_doubles(), (std::vector<double>{1, 0, 1})) << dtype;
    EXPECT_EQ(where(chosen, a, Tensor::zeros({}, dtype)).dtype(), dtype);
  }
}

// Infinity times 0 in a masked place would be NaN: the gradient is chosen, not multiplied.
TEST(Compare, AMaskedInfinityGivesNoGradient) {
  const Tensor x = requires_grad(Tensor::of<float>({2}, {-INFINITY, 2}));
  const Tensor y = where(greater(x, 0.0), x, 0.0);
  backward(y, Tensor::of<float>({2}, {INFINITY, 3}));
  EXPECT_EQ(grad_of(x).to_doubles(), (std::vector<double>{0, 3}));
}

TEST(CompareRefusal, EveryComparison) {
  const std::pair<const char*, Operation> operations[] = {{"equal", equal},
                                                          {"not_equal", not_equal},
                                                          {"less", less},
                                                          {"less_equal", less_equal},
                                                          {"greater", greater},
                                                          {"greater_equal", greater_equal},
                                                          {"logical_and", logical_and},
                                                          {"logical_or", logical_or}};
  const Tensor x = Tensor::zeros({2, 3});
  for (const auto& [name, f] : operations) {
    refuses<UsageError>(name, [&] { return f(x, Tensor()); });
    refuses<UsageError>(name, [&] { return f(Tensor(), x); });
    refuses<ShapeError>(name, [&] { return f(x, Tensor::zeros({2})); });
    refuses<ShapeError>(name, [&] { return f(x, Tensor::zeros({3, 2})); });
    refuses<DTypeError>(name, [&] { return f(x, Tensor::zeros({2, 3}, DType::f64)); });
  }
  refuses<UsageError>("less", [] { return less(Tensor::zeros({2}, DType::i64), 0.5); });
  refuses<UsageError>("equal", [] { return equal(Tensor::zeros({2}, DType::u8), 256); });
  refuses<UsageError>("equal", [] { return equal(Tensor(), 1.0); });
}

TEST(CompareRefusal, Where) {
  const Tensor x = Tensor::zeros({2, 3}), chosen = Tensor::zeros({2, 3}, DType::boolean);
  refuses<UsageError>("where", [&] { return where({}, x, x); });
  refuses<UsageError>("where", [&] { return where(chosen, Tensor(), x); });
  refuses<UsageError>("where", [&] { return where(chosen, x, Tensor()); });
  refuses<DTypeError>("where", [&] { return where(x, x, x); });
  refuses<DTypeError>("where", [&] { return where(chosen, x, x.to(DType::f64)); });
  refuses<ShapeError>("where", [&] { return where(chosen, x, Tensor::zeros({2})); });
  refuses<ShapeError>("where", [&] { return where(Tensor::zeros({4, 1}, DType::boolean), x, x); });
  refuses<UsageError>("where", [&] { return where(chosen, x.to(DType::i32), 0.5); });
  refuses<ShapeError>("masked_fill", [&] { return masked_fill(Tensor::zeros({3}), chosen, 0); });
  refuses<DTypeError>("masked_fill", [&] { return masked_fill(x, x, 0); });
  refuses<UsageError>("masked_fill", [&] { return masked_fill({}, chosen, 0); });
  refuses<UsageError>("masked_fill", [&] { return masked_fill(x.to(DType::i32), chosen, 0.5); });
}

}  // namespace
}  // namespace hearth::test::compare_test
