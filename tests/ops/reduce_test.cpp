// SPDX-License-Identifier: Apache-2.0
// Sums, means and extremes over every kind of axis set.
#include "ops/reduce/reduce.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>

#include "autograd/backward.h"
#include "autograd/grad_mode.h"
#include "autograd/grad_state.h"
#include "ops/pointwise/binary.h"
#include "ops/pointwise/pointwise.h"
#include "ops/reduce/broadcast_sum.h"
#include "tests/support/op_test.h"

namespace hearth::test::reduce_test {
namespace {

struct Case {
  Shape shape;
  std::vector<int> axes;
};

const Case cases[] = {
    {{}, {}},
    {{1}, {0}},
    {{37}, {}},
    {{3, 37}, {1}},
    {{3, 37}, {0}},
    {{3, 37}, {-2, -1}},
    {{4, 5, 7}, {1}},
    {{4, 5, 7}, {0, 2}},
    {{4, 5, 7}, {2, 0}},
    {{2, 3, 4, 5}, {0, 2}},
    {{2, 3, 4, 5}, {1, 3}},
    {{2, 7, 7, 48}, {0, 1, 2}},
    {{2, 1, 3}, {1}},
    {{300, 3}, {0}},
    {{5, 300}, {0}},
    {{4, 200, 2}, {1}},
    {{2, 3, 2, 3, 2}, {0, 2, 4}},
    // Long enough to be cut into segments on a device; many short rows and columns.
    {{2, 20011}, {1}},
    {{3, 16384}, {1}},
    {{2, 1500, 24}, {1}},
    {{1030, 5}, {0}},
    {{2100, 4}, {1}},
    {{900, 3, 10}, {1}},
};

/// f over the elements that fall together, in row-major order of their positions.
std::vector<double> naive(const Tensor& x, const std::vector<int>& axes,
                          const std::function<double(const std::vector<double>&)>& f) {
  const Shape& shape = x.shape();
  std::vector<bool> reduced(static_cast<std::size_t>(shape.rank()), axes.empty());
  for (const int axis : axes) reduced[static_cast<std::size_t>(axis < 0 ? axis + shape.rank() : axis)] = true;
  std::map<std::vector<std::int64_t>, std::vector<double>> buckets;
  const std::vector<double> values = x.to_doubles();
  for (std::size_t i = 0; i < values.size(); ++i) {
    auto rest = static_cast<std::int64_t>(i);
    std::vector<std::int64_t> place(static_cast<std::size_t>(shape.rank()));
    for (int axis = shape.rank() - 1; axis >= 0; --axis) {
      place[static_cast<std::size_t>(axis)] = reduced[static_cast<std::size_t>(axis)] ? 0 : rest % shape[axis];
      rest /= shape[axis];
    }
    buckets[place].push_back(values[i]);
  }
  std::vector<double> result;
  for (const auto& [place, bucket] : buckets) result.push_back(f(bucket));
  return result;
}

double total(const std::vector<double>& values) {
  double sum = 0;
  for (const double value : values) sum += value;
  return sum;
}

OP_TEST(Sum) {
  for (const Case& c : cases) {
    for (const bool keep : {false, true}) {
      check([&](Draw& draw) { return sum(draw.normal(c.shape), c.axes, keep); },
            [&](Draw& draw) { return naive(draw.normal(c.shape), c.axes, total); });
    }
  }
  check([](Draw& draw) { return sum(draw.normal({0, 3}), {0}); });
}

OP_TEST(Mean) {
  for (const Case& c : cases) {
    check([&](Draw& draw) { return mean(draw.normal(c.shape), c.axes); },
          [&](Draw& draw) {
            return naive(draw.normal(c.shape), c.axes,
                         [](const auto& v) { return total(v) / static_cast<double>(v.size()); });
          });
  }
}

OP_TEST(Max) {
  for (const Case& c : cases) {
    check([&](Draw& draw) { return max(draw.distinct(c.shape), c.axes); },
          [&](Draw& draw) {
            return naive(draw.distinct(c.shape), c.axes,
                         [](const auto& v) { return *std::max_element(v.begin(), v.end()); });
          });
  }
}

OP_TEST(Min) {
  for (const Case& c : cases) {
    check([&](Draw& draw) { return min(draw.distinct(c.shape), c.axes, true); },
          [&](Draw& draw) {
            return naive(draw.distinct(c.shape), c.axes,
                         [](const auto& v) { return *std::min_element(v.begin(), v.end()); });
          });
  }
}

OP_TEST(AMaxAndAMin) {
  for (const Case& c : cases) {
    check([&](Draw& draw) { return amax(draw.distinct(c.shape), c.axes); },
          [&](Draw& draw) {
            return naive(draw.distinct(c.shape), c.axes,
                         [](const auto& v) { return *std::max_element(v.begin(), v.end()); });
          });
    check([&](Draw& draw) { return amin(draw.distinct(c.shape), c.axes, true); },
          [&](Draw& draw) {
            return naive(draw.distinct(c.shape), c.axes,
                         [](const auto& v) { return *std::min_element(v.begin(), v.end()); });
          });
  }
}

OP_TEST(ArgMin) {
  for (const Shape& shape : {Shape{1}, {37}, {4, 5, 7}, {3, 1}}) {
    for (int axis = 0; axis < shape.rank(); ++axis) {
      check([&](Draw& draw) { return argmin(draw.distinct(shape), axis); },
            [&](Draw& draw) {
              return naive(draw.distinct(shape), {axis}, [](const auto& v) {
                return static_cast<double>(std::min_element(v.begin(), v.end()) - v.begin());
              });
            },
            {.no_gradient = true});
    }
  }
}

OP_TEST(ArgMax) {
  for (const Shape& shape : {Shape{1}, {37}, {4, 5, 7}, {3, 1}}) {
    for (int axis = 0; axis < shape.rank(); ++axis) {
      check([&](Draw& draw) { return argmax(draw.distinct(shape), axis); },
            [&](Draw& draw) {
              return naive(draw.distinct(shape), {axis}, [](const auto& v) {
                return static_cast<double>(std::max_element(v.begin(), v.end()) - v.begin());
              });
            },
            {.no_gradient = true});
    }
  }
}

TEST(Reduce, ShapesFollowKeepDims) {
  const Tensor x = Tensor::zeros({2, 3, 4});
  EXPECT_EQ(sum(x).shape(), (Shape{}));
  EXPECT_EQ(sum(x, {}, true).shape(), (Shape{1, 1, 1}));
  EXPECT_EQ(mean(x, {1}).shape(), (Shape{2, 4}));
  EXPECT_EQ(max(x, {0, -1}, true).shape(), (Shape{1, 3, 1}));
  EXPECT_EQ(argmax(x, 1).shape(), (Shape{2, 4}));
  EXPECT_EQ(argmax(x, -1, true).shape(), (Shape{2, 3, 1}));
  EXPECT_EQ(argmax(x, 1).dtype(), DType::i64);
}

TEST(Reduce, TwentyMillionOnesSumExactly) {
  const std::int64_t n = 20'000'003;
  EXPECT_EQ(sum(Tensor::full({n}, 1.0)).item(), static_cast<double>(n - 3 + 4));  // 20000003 rounds to 20000004 in f32
  EXPECT_EQ(mean(Tensor::full({n}, 1.0)).item(), 1.0);
  EXPECT_EQ(sum(Tensor::full({n / 7, 7}, 1.0), {0}).to_doubles(), std::vector<double>(7, std::floor(n / 7.0)));
}

TEST(Reduce, LongSumsOfTenthsStayAccurate) {
  const std::int64_t n = 3'000'000;
  const double tenth = static_cast<double>(0.1f);
  EXPECT_NEAR(sum(Tensor::full({n}, 0.1)).item() / (tenth * static_cast<double>(n)), 1.0, 2e-7);
  for (const double column : sum(Tensor::full({n / 3, 3}, 0.1), {0}).to_doubles())
    EXPECT_NEAR(column / (tenth * static_cast<double>(n / 3)), 1.0, 2e-7);
}

TEST(Reduce, TheFirstOfEqualsIsTaken) {
  const Tensor x = requires_grad(Tensor::of<float>({2, 3}, {1, 5, 5, 2, 2, 1}));
  EXPECT_EQ(argmax(x, 1).to_doubles(), (std::vector<double>{1, 0}));
  backward(sum(max(x, {1})));
  EXPECT_EQ(grad_of(x).to_doubles(), (std::vector<double>{0, 1, 0, 1, 0, 0}));
}

// The values are those of torch.amax and torch.amin.
TEST(Reduce, EqualsShareTheGradientOfAMaxAndAMin) {
  const std::vector<float> values = {1, 5, 5, 2, 2, 1};
  const Tensor x = requires_grad(Tensor::of<float>({2, 3}, values));
  backward(sum(mul(amax(x, {1}), Tensor::of<float>({2}, {1, 3}))));
  EXPECT_EQ(grad_of(x).to_doubles(), (std::vector<double>{0, 0.5, 0.5, 1.5, 1.5, 0}));
  const Tensor least = requires_grad(Tensor::of<float>({2, 3}, values));
  backward(amin(least));
  EXPECT_EQ(grad_of(least).to_doubles(), (std::vector<double>{0.5, 0, 0, 0, 0, 0.5}));
}

TEST(Reduce, NotANumberWins) {
  std::vector<float> values(40, 1.0f);
  values[17] = NAN;
  values[30] = NAN;
  const Tensor x = Tensor::of<float>({40}, values);
  EXPECT_TRUE(std::isnan(max(x).item()));
  EXPECT_TRUE(std::isnan(min(x).item()));
  EXPECT_TRUE(std::isnan(amax(x).item()) && std::isnan(amin(x).item()));
  EXPECT_EQ(argmin(x, 0).item(), 17.0);
  EXPECT_EQ(argmax(x, 0).item(), 17.0);
}

TEST(Reduce, IntegersHaveExtremes) {
  const Tensor x = Tensor::of<std::int64_t>({3}, {-5, (std::int64_t{1} << 60) + 1, std::int64_t{1} << 60});
  EXPECT_EQ(max(x).data<std::int64_t>()[0], (std::int64_t{1} << 60) + 1);
  EXPECT_EQ(min(x).data<std::int64_t>()[0], -5);
  EXPECT_EQ(argmax(x, 0).item(), 1.0);
}

TEST(Reduce, BroadcastSumUndoesBroadcasting) {
  const Tensor x = Tensor::full({4, 2, 3}, 1.0);
  EXPECT_EQ(broadcast_sum(x, {2, 1}).to_doubles(), (std::vector<double>{12, 12}));
  EXPECT_EQ(broadcast_sum(x, {}).item(), 24.0);
  EXPECT_EQ(broadcast_sum(x, {1, 2, 3}).shape(), (Shape{1, 2, 3}));
}

using Reduction = Tensor (*)(const Tensor&, const std::vector<int>&, KeepDims);

TEST(ReduceRefusal, EveryReduction) {
  const std::pair<const char*, Reduction> reductions[] = {{"sum", sum}, {"mean", mean}, {"max", max},
                                                          {"min", min}, {"amax", amax}, {"amin", amin}};
  const Tensor x = Tensor::zeros({2, 3});
  for (const auto& [name, f] : reductions) {
    refuses<UsageError>(name, [&] { return f(Tensor(), {}, false); });
    refuses<ShapeError>(name, [&] { return f(x, {2}, false); });
    refuses<ShapeError>(name, [&] { return f(x, {-3}, false); });
    refuses<ShapeError>(name, [&] { return f(x, {std::numeric_limits<int>::min()}, false); });
    refuses<ShapeError>(name, [&] { return f(x, {1, -1}, false); });
    refuses<DTypeError>(name, [&] { return f(Tensor::zeros({2}, DType::u8), {}, false); });
    refuses<ShapeError>(name, [&] { return f(Tensor::zeros({}), {0}, false); });
  }
  const Tensor nothing = Tensor::zeros({2, 0});
  refuses<ShapeError>("mean", [&] { return mean(nothing); });
  refuses<ShapeError>("max", [&] { return max(nothing, {1}); });
  refuses<ShapeError>("min", [&] { return min(nothing); });
  EXPECT_EQ(max(nothing, {0}).shape(), (Shape{0}));
  EXPECT_EQ(sum(nothing, {1}).to_doubles(), (std::vector<double>{0, 0}));
  refuses<DTypeError>("sum", [&] { return sum(Tensor::zeros({2}, DType::i64)); });
}

TEST(ReduceRefusal, ArgMax) {
  const Tensor x = Tensor::zeros({2, 3});
  refuses<UsageError>("argmin", [&] { return argmin(Tensor(), 0); });
  refuses<ShapeError>("argmin", [&] { return argmin(x, 2); });
  refuses<ShapeError>("argmin", [&] { return argmin(x, -3); });
  refuses<ShapeError>("argmin", [&] { return argmin(Tensor::zeros({2, 0}), 1); });
  refuses<DTypeError>("argmin", [&] { return argmin(Tensor::zeros({2}, DType::boolean), 0); });
  refuses<UsageError>("argmax", [&] { return argmax(Tensor(), 0); });
  refuses<ShapeError>("argmax", [&] { return argmax(x, 2); });
  refuses<ShapeError>("argmax", [&] { return argmax(x, -3); });
  refuses<ShapeError>("argmax", [&] { return argmax(Tensor::zeros({2, 0}), 1); });
  refuses<ShapeError>("argmax", [&] { return argmax(Tensor::zeros({}), 0); });
  refuses<DTypeError>("argmax", [&] { return argmax(Tensor::zeros({2}, DType::boolean), 0); });
}

// A loss of one's own, of f16 results: 3e5 and 9e4 are beyond what f16 holds.
TEST(Reduce, ALossOfOnesOwnIsComputedInF32UnderAutocast) {
  const AutocastScope scope(DType::f16);
  const Tensor small = requires_grad(Tensor::full({100000}, 3.0, DType::f16));
  EXPECT_EQ(sum(small).dtype(), DType::f32);
  EXPECT_EQ(sum(small).item(), 3e5);
  EXPECT_EQ(mean(small).dtype(), DType::f32);
  const Tensor large = requires_grad(Tensor::full({64}, 300.0, DType::f16));
  const Tensor loss = mean(square(large));
  EXPECT_EQ(square(large).dtype(), DType::f32);
  EXPECT_EQ(loss.item(), 9e4);
  backward(loss);
  EXPECT_EQ(grad_of(large).dtype(), DType::f16);
  EXPECT_EQ(grad_of(large).to_doubles(), std::vector<double>(64, 2 * 300.0 / 64));
}

}  // namespace
}  // namespace hearth::test::reduce_test
