// SPDX-License-Identifier: Apache-2.0
#include "ops/interpolate/interpolate.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "autograd/backward.h"
#include "autograd/grad_state.h"
#include "tests/support/op_test.h"

namespace hearth::test::interpolate_test {
namespace {

struct Case {
  Shape x;
  Pair size;
};

// One pixel, twice as large, odd and larger, smaller, one way each, to one pixel, more channels than a block, aligned.
const std::vector<Case>& cases() {
  static const std::vector<Case> all{
      {{1, 1, 1, 1}, 1},        {{2, 3, 4, 16}, {6, 8}},  {{1, 5, 3, 3}, {7, 11}}, {{2, 9, 11, 2}, {4, 3}},
      {{1, 4, 10, 4}, {13, 4}}, {{1, 6, 5, 5}, {1, 1}},   {{1, 1, 1, 3}, {4, 5}},  {{1, 3, 3, 300}, {2, 5}},
      {{1, 4, 6, 8}, {4, 6}},   {{1, 40, 2, 1}, {3, 90}},
  };
  return all;
}

/// The weights of all pixels of one axis for each result, [out, in], from the definition.
std::vector<double> naive_weights(std::int64_t in, std::int64_t out, const InterpolateOptions& options) {
  std::vector<double> weights;
  const auto n = static_cast<double>(in), m = static_cast<double>(out);
  const double step = options.align_corners ? (m > 1 ? (n - 1) / (m - 1) : 0) : n / m;
  for (std::int64_t o = 0; o < out; ++o) {
    const double shifted =
        options.align_corners ? static_cast<double>(o) * step : (static_cast<double>(o) + 0.5) * step - 0.5;
    const double reach = std::max(1.0, step), centre = (static_cast<double>(o) + 0.5) * step - 0.5;
    double total = 0;
    std::vector<double> row;
    for (std::int64_t i = 0; i < in; ++i) {
      const auto place = static_cast<double>(i);
      double weight = std::max(0.0, 1 - std::abs(place - std::clamp(shifted, 0.0, n - 1)));
      if (options.mode == Interpolation::nearest) weight = o * in / out == i ? 1 : 0;
      if (options.antialias) weight = std::max(0.0, 1 - std::abs(place - centre) / reach);
      total += weight;
      row.push_back(weight);
    }
    for (const double weight : row) weights.push_back(weight / total);
  }
  return weights;
}

std::vector<double> naive_interpolate(const Tensor& x, const InterpolateOptions& options) {
  const std::vector<double> v = x.to_doubles();
  const std::int64_t h = x.dim(1), w = x.dim(2), channels = x.dim(3), p_end = options.size->h, q_end = options.size->w;
  const std::vector<double> down = naive_weights(h, p_end, options), across = naive_weights(w, q_end, options);
  std::vector<double> y;
  for (std::int64_t n = 0; n < x.dim(0); ++n)
    for (std::int64_t p = 0; p < p_end; ++p)
      for (std::int64_t q = 0; q < q_end; ++q)
        for (std::int64_t c = 0; c < channels; ++c) {
          double sum = 0;
          for (std::int64_t i = 0; i < h; ++i)
            for (std::int64_t j = 0; j < w; ++j)
              sum += down[static_cast<std::size_t>(p * h + i)] * across[static_cast<std::size_t>(q * w + j)] *
                     v[static_cast<std::size_t>(((n * h + i) * w + j) * channels + c)];
          y.push_back(sum);
        }
  return y;
}

void check_mode(InterpolateOptions options) {
  for (const Case& c : cases()) {
    SCOPED_TRACE(testing::Message() << "x " << c.x << " to " << c.size.h << " x " << c.size.w);
    options.size = c.size;
    check([&](Draw& draw) { return interpolate(draw.normal(c.x), options); },
          [&](Draw& draw) { return naive_interpolate(draw.normal(c.x), options); });
  }
}

OP_TEST(InterpolateNearest) { check_mode({}); }
OP_TEST(InterpolateBilinear) { check_mode({.mode = Interpolation::bilinear}); }
OP_TEST(InterpolateAlignCorners) { check_mode({.mode = Interpolation::bilinear, .align_corners = true}); }
OP_TEST(InterpolateAntialias) { check_mode({.mode = Interpolation::bilinear, .antialias = true}); }

// The factor itself maps pixels, also where it leaves a part of x or of a pixel over.
OP_TEST(InterpolateScale) {
  for (const ImageScale scale : {ImageScale(2), {0.7, 0.3}, {1.2, 2.9}, {0.26, 1}})
    for (const InterpolateOptions& options : {InterpolateOptions{.scale = scale},
                                              {.scale = scale, .mode = Interpolation::bilinear},
                                              {.scale = scale, .mode = Interpolation::bilinear, .antialias = true}})
      check([&](Draw& draw) { return interpolate(draw.normal({2, 7, 5, 4}), options); });
}

TEST(InterpolateValues, NearestIsCopies) {
  const Tensor x = Tensor::of<float>({1, 2, 2, 1}, {1, 2, 3, std::numeric_limits<float>::infinity()});
  const double inf = std::numeric_limits<double>::infinity();
  EXPECT_EQ(interpolate(x, {.scale = 2}).to_doubles(),
            (std::vector<double>{1, 1, 2, 2, 1, 1, 2, 2, 3, 3, inf, inf, 3, 3, inf, inf}));
}

TEST(InterpolateValues, PixelsOfNoWeightAreNotRead) {
  std::vector<float> values(16, 1);
  values[5] = std::numeric_limits<float>::quiet_NaN();
  const Tensor x = Tensor::of({1, 4, 4, 1}, values);
  for (const bool antialias : {false, true})
    for (const double value :
         interpolate(x, {.size = Pair{4, 4}, .mode = Interpolation::bilinear, .antialias = antialias}).to_doubles())
      EXPECT_TRUE(value == 1 || std::isnan(value));
  const Tensor corners = interpolate(x, {.size = 2, .mode = Interpolation::bilinear, .align_corners = true});
  EXPECT_EQ(corners.to_doubles(), std::vector<double>(4, 1.0));
}

TEST(InterpolateValues, AntialiasKeepsTheMean) {
  std::vector<float> values(64);
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = i % 2 == 0 ? 1.0f : 0.0f;
  const Tensor x = Tensor::of({1, 1, 64, 1}, values);
  // Without it every second pixel is all that is seen.
  const InterpolateOptions plain{.size = Pair{1, 8}, .mode = Interpolation::bilinear};
  InterpolateOptions smooth = plain;
  smooth.antialias = true;
  for (const double value : interpolate(x, smooth).to_doubles()) EXPECT_NEAR(value, 0.5, 0.02);
}

TEST(InterpolateSizes, EmptyBatchAndNoChannels) {
  for (const Shape& shape : {Shape{0, 4, 4, 3}, {2, 4, 4, 0}}) {
    const Tensor x = requires_grad(Tensor::empty(shape));
    const Tensor y = interpolate(x, {.size = Pair{2, 7}, .mode = Interpolation::bilinear});
    EXPECT_EQ(y.shape(), (Shape{shape[0], 2, 7, shape[3]}));
    backward(y, Tensor::empty_like(y));
    EXPECT_EQ(grad_of(x).shape(), shape);
  }
}

TEST(InterpolateSizes, PixelsThatNothingReadsHaveNoGradient) {
  const Tensor x = requires_grad(Tensor::full({1, 5, 1, 1}, 1));
  backward(interpolate(x, {.size = Pair{2, 1}}), Tensor::full({1, 2, 1, 1}, 3));
  EXPECT_EQ(grad_of(x).to_doubles(), (std::vector<double>{3, 0, 3, 0, 0}));
}

TEST(InterpolateArguments, OptionsOutOfRange) {
  const Tensor x = Tensor::zeros({2, 8, 8, 3});
  const double inf = std::numeric_limits<double>::infinity();
  for (const Pair size : {Pair{0}, {-1}, {0, 4}, {4, 0}, {4, -7}, {std::int64_t{1} << 62}})
    refuses<ShapeError>("interpolate", [&] { return interpolate(x, {.size = size}); });
  for (const ImageScale scale : {ImageScale(0), {-2}, {inf}, {std::nan("")}, {0.1}, {2, 0.1}, {1e300}, {1e18}})
    refuses<ShapeError>("interpolate", [&] { return interpolate(x, {.scale = scale}); });
  refuses<UsageError>("interpolate", [&] { return interpolate(x, {}); });
  refuses<UsageError>("interpolate", [&] { return interpolate(x, {.size = 4, .scale = 0.5}); });
  refuses<UsageError>("interpolate", [&] { return interpolate(x, {.size = 4, .align_corners = true}); });
  refuses<UsageError>("interpolate", [&] { return interpolate(x, {.size = 4, .antialias = true}); });
}

TEST(InterpolateArguments, Refused) {
  for (const Shape& shape : {Shape{8, 8, 3}, {2, 0, 8, 3}, {2, 8, 0, 3}, {1, 2, 8, 8, 3}})
    refuses<ShapeError>("interpolate", [&] { return interpolate(Tensor::zeros(shape), {.size = 2}); });
  refuses<DTypeError>("interpolate", [&] { return interpolate(Tensor::zeros({2, 8, 8, 3}, DType::u8), {.size = 2}); });
  refuses<UsageError>("interpolate", [] { return interpolate(Tensor(), {.size = 2}); });
}

}  // namespace
}  // namespace hearth::test::interpolate_test
