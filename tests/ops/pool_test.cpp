// SPDX-License-Identifier: Apache-2.0
#include "ops/pool/pool.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "autograd/backward.h"
#include "autograd/grad_state.h"
#include "tests/support/devices.h"
#include "tests/support/op_test.h"

namespace hearth::test::pool_test {
namespace {

struct Case {
  Shape x;
  Pair kernel, stride, padding;
};

// One pixel, odd, a residual network's stem (with channels for whole vectors, an odd height or width, one row), windows
// apart from each other, more channels than a block, whole image.
const std::vector<Case>& cases() {
  static const std::vector<Case> all{
      {{1, 1, 1, 1}, 1, 1, 0},      {{2, 7, 5, 3}, {3, 2}, {2, 1}, {1, 0}},
      {{2, 9, 8, 16}, 3, 2, 1},     {{1, 11, 7, 2}, 2, 4, 0},
      {{1, 4, 4, 300}, 2, 2, 0},    {{2, 5, 6, 4}, {5, 6}, 1, 0},
      {{1, 6, 6, 5}, 4, {1, 3}, 2}, {{2, 5, 6, 32}, 3, 2, 1},
      {{1, 6, 5, 64}, 3, 2, 1},     {{1, 1, 3, 32}, 3, 2, 1},
  };
  return all;
}

/// fold(window's values, in row-major order, pixels inside) for each window and channel.
template <class Fold>
std::vector<double> naive_pool(const Case& c, const Tensor& x, Fold&& fold) {
  const std::vector<double> v = x.to_doubles();
  const std::int64_t h = c.x[1], w = c.x[2], channels = c.x[3];
  std::vector<double> y;
  for (std::int64_t n = 0; n < c.x[0]; ++n)
    for (std::int64_t top = -c.padding.h; top + c.kernel.h <= h + c.padding.h; top += c.stride.h)
      for (std::int64_t left = -c.padding.w; left + c.kernel.w <= w + c.padding.w; left += c.stride.w)
        for (std::int64_t i = 0; i < channels; ++i) {
          std::vector<double> window;
          for (std::int64_t r = std::max<std::int64_t>(0, top); r < std::min(h, top + c.kernel.h); ++r)
            for (std::int64_t s = std::max<std::int64_t>(0, left); s < std::min(w, left + c.kernel.w); ++s)
              window.push_back(v[static_cast<std::size_t>(((n * h + r) * w + s) * channels + i)]);
          y.push_back(fold(window));
        }
  return y;
}

OP_TEST(MaxPool2d) {
  for (const Case& c : cases()) {
    SCOPED_TRACE(testing::Message() << "x " << c.x);
    check(
        [&](Draw& draw) {
          return max_pool2d(draw.distinct(c.x), {c.kernel, c.stride, c.padding});
        },
        [&](Draw& draw) {
          return naive_pool(c, draw.distinct(c.x),
                            [](const std::vector<double>& w) { return *std::max_element(w.begin(), w.end()); });
        });
  }
}

OP_TEST(MaxPool2dWideWindow) {
  // More than 256 positions in a window.
  check([](Draw& draw) { return max_pool2d(draw.distinct({1, 18, 19, 2}), {.kernel = {17, 18}, .stride = 1}); });
}

OP_TEST(AvgPool2d) {
  for (const Case& c : cases()) {
    SCOPED_TRACE(testing::Message() << "x " << c.x);
    for (const bool count_include_pad : {true, false})
      check(
          [&](Draw& draw) {
            return avg_pool2d(draw.normal(c.x), {c.kernel, c.stride, c.padding, count_include_pad});
          },
          [&](Draw& draw) {
            return naive_pool(c, draw.normal(c.x), [&](const std::vector<double>& w) {
              double sum = 0;
              for (const double value : w) sum += value;
              return sum /
                     (count_include_pad ? static_cast<double>(c.kernel.h * c.kernel.w) : static_cast<double>(w.size()));
            });
          });
  }
}

OP_TEST(GlobalAvgPool) {
  for (const Shape& shape : {Shape{1, 1, 1, 1}, {3, 5, 7, 9}, {2, 7, 7, 300}, {1, 9, 15, 16}})
    check([&](Draw& draw) { return global_avg_pool(draw.normal(shape)); },
          [&](Draw& draw) {
            const Case whole{shape, {shape[1], shape[2]}, 1, 0};
            return naive_pool(whole, draw.normal(shape), [](const std::vector<double>& w) {
              double sum = 0;
              for (const double value : w) sum += value;
              return sum / static_cast<double>(w.size());
            });
          });
}

TEST(MaxPool2dEdges, FirstOfEqualMaximaGetsTheGradient) {
  const Tensor x = requires_grad(Tensor::full({1, 2, 2, 1}, 3));
  const Tensor y = max_pool2d(x, {.kernel = 2});
  backward(y, Tensor::full({1, 1, 1, 1}, 5));
  EXPECT_EQ(grad_of(x).to_doubles(), (std::vector<double>{5, 0, 0, 0}));
}

TEST(MaxPool2dEdges, PaddingIsNeverTheMaximum) {
  const Tensor y = max_pool2d(Tensor::full({1, 3, 3, 2}, -7), {.kernel = 3, .stride = 2, .padding = 1});
  EXPECT_EQ(y.to_doubles(), std::vector<double>(8, -7.0));
}

TEST(MaxPool2dEdges, NotANumberWins) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  for (int at = 0; at < 4; ++at) {
    std::vector<float> values{1, 2, 3, 4};
    values[static_cast<std::size_t>(at)] = nan;
    EXPECT_TRUE(std::isnan(max_pool2d(Tensor::of({1, 2, 2, 1}, values), {.kernel = 2}).item()));
  }
  // The first of several.
  for (const Device device : devices()) {
    const Tensor x = requires_grad(Tensor::of<float>({1, 2, 2, 1}, {5, nan, 7, nan}).to(device));
    backward(max_pool2d(x, {.kernel = 2}), Tensor::full({1, 1, 1, 1}, 3, DType::f32, device));
    EXPECT_EQ(grad_of(x).to_doubles(), (std::vector<double>{0, 3, 0, 0})) << device;
  }
}

TEST(MaxPool2dEdges, AllMinusInfinity) {
  const Tensor x = requires_grad(Tensor::full({1, 2, 2, 1}, -std::numeric_limits<double>::infinity()));
  const Tensor y = max_pool2d(x, {.kernel = 2});
  EXPECT_EQ(y.item(), -std::numeric_limits<double>::infinity());
  backward(y, Tensor::full({1, 1, 1, 1}, 1));
  EXPECT_EQ(grad_of(x).to_doubles(), (std::vector<double>{1, 0, 0, 0}));
}

TEST(GlobalAvgPoolEdges, ManyOnesAverageToOne) {
  EXPECT_EQ(global_avg_pool(Tensor::full({1, 5000, 4000, 1}, 1)).item(), 1.0);
}

TEST(PoolSizes, EmptyBatchAndNoChannels) {
  for (const Shape& shape : {Shape{0, 4, 4, 3}, {2, 4, 4, 0}}) {
    const Tensor x = requires_grad(Tensor::empty(shape));
    const std::vector<Tensor> results{max_pool2d(x, {.kernel = 2}), avg_pool2d(x, {.kernel = 2}), global_avg_pool(x)};
    EXPECT_EQ(results[0].shape(), (Shape{shape[0], 2, 2, shape[3]}));
    EXPECT_EQ(results[1].shape(), (Shape{shape[0], 2, 2, shape[3]}));
    EXPECT_EQ(results[2].shape(), (Shape{shape[0], shape[3]}));
    for (const Tensor& y : results) backward(y, Tensor::empty_like(y));
    EXPECT_EQ(grad_of(x).shape(), shape);
  }
}

TEST(PoolArguments, OptionsOutOfRange) {
  const Tensor x = Tensor::zeros({2, 8, 8, 3});
  const std::int64_t huge = std::int64_t{1} << 62;
  struct Bad {
    Pair kernel, stride, padding;
  };
  for (const Bad& bad : {Bad{0, 1, 0},
                         {-2, 1, 0},
                         {{3, 0}, 1, 0},
                         {3, 0, 0},
                         {3, -1, 0},
                         {3, {1, 0}, 0},
                         {3, 1, 2},
                         {3, 1, -1},
                         {9, 1, 0},
                         {huge, 1, 0},
                         {huge, 1, huge / 2},
                         {3, 1, huge}}) {
    refuses<ShapeError>("max_pool2d", [&] { return max_pool2d(x, {bad.kernel, bad.stride, bad.padding}); });
    refuses<ShapeError>("avg_pool2d", [&] { return avg_pool2d(x, {bad.kernel, bad.stride, bad.padding}); });
  }
}

TEST(PoolArguments, Refused) {
  for (const Shape& shape : {Shape{8, 8, 3}, {2, 0, 8, 3}, {2, 8, 0, 3}, {1, 2, 8, 8, 3}}) {
    const Tensor x = Tensor::zeros(shape);
    refuses<ShapeError>("max_pool2d", [&] { return max_pool2d(x, {.kernel = 2, .padding = 1}); });
    refuses<ShapeError>("avg_pool2d", [&] { return avg_pool2d(x, {.kernel = 2, .padding = 1}); });
    refuses<ShapeError>("global_avg_pool", [&] { return global_avg_pool(x); });
  }
  const Tensor bytes = Tensor::zeros({2, 8, 8, 3}, DType::u8);
  refuses<DTypeError>("max_pool2d", [&] { return max_pool2d(bytes, {.kernel = 2}); });
  refuses<DTypeError>("avg_pool2d", [&] { return avg_pool2d(bytes, {.kernel = 2}); });
  refuses<DTypeError>("global_avg_pool", [&] { return global_avg_pool(bytes); });
  refuses<UsageError>("max_pool2d", [] { return max_pool2d(Tensor(), {.kernel = 2}); });
  refuses<UsageError>("avg_pool2d", [] { return avg_pool2d(Tensor(), {.kernel = 2}); });
  refuses<UsageError>("global_avg_pool", [] { return global_avg_pool(Tensor()); });
}

}  // namespace
}  // namespace hearth::test::pool_test
