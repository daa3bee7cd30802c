// SPDX-License-Identifier: Apache-2.0
// The op oracle itself: it accepts a correct op and catches ops that are wrong by a thousandth in one place.
#include <cmath>

#include "autograd/record.h"
#include "tests/support/op_test.h"

namespace hearth::test::oracle_test {
namespace {

/// What is wrong with the op below.
struct Fault {
  double value_scale = 1.0;     ///< factor on the value, at `value_dtype` only unless `everywhere`
  double gradient_scale = 1.0;  ///< factor on the gradient
  DType dtype = DType::f64;     ///< where the fault shows
  bool everywhere = false;
  bool infinite = false;
  bool overwrites = false;
  bool ignores_strides = false;
  bool ignores_strides_of_dy = false;
};

std::vector<double> as_if_dense(const Tensor& x) {
  return Tensor::view(x.storage(), x.shape(), contiguous_strides(x.shape()), x.offset(), x.dtype(), x.device())
      .to_doubles();
}

/// y = x^2 by plain loops over doubles.
struct FaultySquare {
  static constexpr OpInfo info{.name = "faulty_square"};
  struct Saved {
    Tensor x;
  };
  Fault fault;

  double factor(double scale, DType dtype) const { return fault.everywhere || dtype == fault.dtype ? scale : 1.0; }

  Tensor forward(Saved& saved, const Tensor& x) const {
    std::vector<double> values = x.to_doubles();
    if (fault.ignores_strides) values = as_if_dense(x);
    for (double& value : values) value *= value * factor(fault.value_scale, x.dtype());
    if (fault.infinite) values.back() = INFINITY;
    saved.x = x.contiguous();
    Tensor y = Tensor::of<double>(x.shape(), values).to(x.dtype()).to(x.device());
    if (fault.overwrites) x.fill_(0.0);
    return y;
  }

  std::array<Tensor, 1> backward(const Saved& saved, Tensor dy, const NeedsGrad&) const {
    const std::vector<double> x = saved.x.to_doubles();
    std::vector<double> values = fault.ignores_strides_of_dy ? as_if_dense(dy) : dy.to_doubles();
    for (std::size_t i = 0; i < values.size(); ++i) values[i] *= 2 * x[i] * factor(fault.gradient_scale, dy.dtype());
    return {Tensor::of<double>(dy.shape(), values).to(dy.dtype()).to(dy.device())};
  }
};

/// y = a b, whose gradient of `a` is right only beside that of b.
struct ProductOfTwo {
  static constexpr OpInfo info{.name = "product_of_two"};
  struct Saved {
    std::vector<double> a, b;
  };
  bool faulty;

  Tensor forward(Saved& saved, const Tensor& a, const Tensor& b) const {
    saved = {a.to_doubles(), b.to_doubles()};
    return times(a, saved.a, saved.b);
  }
  std::array<Tensor, 2> backward(const Saved& saved, const Tensor& dy, const NeedsGrad& needs) const {
    std::array<Tensor, 2> gradients;
    if (needs[0]) gradients[0] = times(dy, dy.to_doubles(), faulty && !needs[1] ? saved.a : saved.b);
    if (needs[1]) gradients[1] = times(dy, dy.to_doubles(), saved.a);
    return gradients;
  }
  static Tensor times(const Tensor& like, std::vector<double> a, const std::vector<double>& b) {
    for (std::size_t i = 0; i < a.size(); ++i) a[i] *= b[i];
    return Tensor::of<double>(like.shape(), a).to(like.dtype()).to(like.device());
  }
};

std::vector<double> naive_square(Draw& draw) {
  std::vector<double> values = draw.normal({3, 7}).to_doubles();
  for (double& value : values) value *= value;
  return values;
}

std::size_t disagreements_of(const Site& site, const Fault& fault, const NaiveBody& naive = {}) {
  return disagreements(site,
                       [&](Draw& draw) {
                         return record(FaultySquare{fault}, draw.normal({3, 7}));
                       },
                       naive, {})
      .size();
}

const Site& site_of(DType dtype) {
  for (const Site& site : sites()) {
    if (site.dtype == dtype) return site;
  }
  throw UsageError("no such site");
}

TEST(OpOracle, AcceptsACorrectOp) {
  for (const Site& site : sites()) EXPECT_EQ(disagreements_of(site, {}, naive_square), 0u) << site.name;
}

TEST(OpOracle, CatchesAGradientOffByAThousandthInF64) {
  EXPECT_GT(disagreements_of(site_of(DType::f64), {.gradient_scale = 1.001}), 0u);
}

TEST(OpOracle, CatchesAValueOffByAThousandthInF32) {
  EXPECT_GT(disagreements_of(site_of(DType::f32), {.value_scale = 1.001, .dtype = DType::f32}), 0u);
}

TEST(OpOracle, CatchesAGradientOffByAThousandthInF32) {
  EXPECT_GT(disagreements_of(site_of(DType::f32), {.gradient_scale = 1.001, .dtype = DType::f32}), 0u);
}

TEST(OpOracle, CatchesCoarseFaultsInHalfTypes) {
  EXPECT_GT(disagreements_of(site_of(DType::f16), {.value_scale = 1.01, .dtype = DType::f16}), 0u);
  EXPECT_GT(disagreements_of(site_of(DType::bf16), {.gradient_scale = 1.05, .dtype = DType::bf16}), 0u);
}

TEST(OpOracle, ANaiveComputationCatchesAConsistentFault) {
  // Value and gradient agree with each other, so only an independent value can tell.
  const Fault fault{.value_scale = 1.001, .gradient_scale = 1.001, .everywhere = true};
  EXPECT_EQ(disagreements_of(site_of(DType::f64), fault), 0u);
  EXPECT_GT(disagreements_of(site_of(DType::f64), fault, naive_square), 0u);
}

TEST(OpOracle, CatchesInfinitiesOverwrittenInputsAndIgnoredStrides) {
  EXPECT_GT(disagreements_of(site_of(DType::f32), {.infinite = true}), 0u);
  EXPECT_GT(disagreements_of(site_of(DType::f32), {.overwrites = true}), 0u);
  EXPECT_GT(disagreements_of(site_of(DType::f32), {.ignores_strides = true}), 0u);
}

TEST(OpOracle, CatchesADyWhoseStridesAreIgnored) {
  for (const Site& site : sites()) EXPECT_GT(disagreements_of(site, {.ignores_strides_of_dy = true}), 0u) << site.name;
}

TEST(OpOracle, CatchesAGradientThatIsWrongAlone) {
  for (const bool faulty : {false, true})
    for (const Site& site : sites()) {
      const auto body = [&](Draw& draw) {
        const Tensor a = draw.normal({3, 7});
        return record(ProductOfTwo{faulty}, a, draw.normal({3, 7}));
      };
      EXPECT_EQ(disagreements(site, body, {}, {}).empty(), !faulty) << site.name;
    }
}

TEST(OpOracle, DrawsWhatItPromises) {
  const auto body = [](Draw& draw) {
    for (const double x : draw.away_from_zero({999}).to_doubles()) EXPECT_GE(std::abs(x), 0.1);
    for (const double x : draw.positive({999}).to_doubles()) EXPECT_GE(x, 0.5);
    for (const double x : draw.integers({99}, 3).to_doubles()) EXPECT_TRUE(x == 0 || x == 1 || x == 2);
    std::vector<double> values = draw.distinct({401}).to_doubles();
    std::sort(values.begin(), values.end());
    for (std::size_t i = 1; i < values.size(); ++i) EXPECT_EQ(values[i] - values[i - 1], 1.0 / 64);
    EXPECT_EQ(draw.normal({3}, 1.0, Width::wide).dtype(), size_of(draw.dtype()) == 2 ? DType::f32 : draw.dtype());
    return draw.constant({2}, {1.0, 2.0});
  };
  for (const Site& site : sites()) EXPECT_TRUE(disagreements(site, body, {}, {.no_gradient = true}).empty());
}

}  // namespace
}  // namespace hearth::test::oracle_test
