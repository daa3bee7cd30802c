// SPDX-License-Identifier: Apache-2.0
// Direct convolutions of small images against plain loops in double.
#include "ops/conv/direct_bf16.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "core/cpu/parallel.h"
#include "core/half.h"
#include "core/random.h"
#include "ops/conv/paired_bf16.h"

namespace hearth::cpu::dnn {
namespace {

ConvShape shape(std::int64_t n, std::int64_t h, std::int64_t w, std::int64_t c, std::int64_t k, std::int64_t r,
                std::int64_t s, std::int64_t stride, std::int64_t pad, std::int64_t dilation = 1) {
  ConvShape result{.n = n, .h = h, .w = w, .c = c, .k = k, .r = r, .s = s};
  result.stride_h = result.stride_w = stride;
  result.pad_h = result.pad_w = pad;
  result.dilation_h = result.dilation_w = dilation;
  result.p = (h + 2 * pad - (r - 1) * dilation - 1) / stride + 1;
  result.q = (w + 2 * pad - (s - 1) * dilation - 1) / stride + 1;
  return result;
}

// Cases that differ in what they cut off, skip or leave without any tap.
std::vector<ConvShape> shapes() {
  std::vector<ConvShape> all{shape(8, 2, 2, 128, 128, 3, 3, 1, 1), shape(15, 4, 3, 128, 160, 3, 3, 1, 1),
                             shape(8, 5, 6, 160, 128, 3, 3, 2, 1), shape(8, 1, 1, 128, 128, 3, 3, 1, 1),
                             shape(8, 6, 7, 128, 128, 2, 3, 3, 0), shape(8, 5, 5, 128, 128, 3, 3, 1, 2, 2)};
  ConvShape uneven = shape(16, 5, 5, 128, 128, 3, 3, 2, 1);
  uneven.pad_h = 0, uneven.stride_w = 1, uneven.q = 5;
  uneven.p = 3;  // a row of padding below only
  all.push_back(uneven);
  return all;
}

template <class T>
std::vector<T> random_values(std::int64_t size, std::uint64_t seed) {
  Random random(seed, 0);
  std::vector<T> values;
  for (std::int64_t i = 0; i < size; ++i) values.push_back(T(static_cast<float>(random.uniform(-1.0, 1.0))));
  return values;
}

struct Problem {
  ConvProblem conv;
  std::vector<bf16> x, dy;
  std::vector<float> w, b;

  explicit Problem(const ConvShape& s) : conv{.shape = s, .activations = DType::bf16} {
    x = random_values<bf16>(s.n * s.h * s.w * s.c, 1);
    dy = random_values<bf16>(s.n * s.p * s.q * s.k, 2);
    w = random_values<float>(s.k * s.r * s.s * s.c, 3);
    b = random_values<float>(s.k, 4);
  }
};

// f(pixel of x, pixel of y, tap) for every tap that falls inside.
template <class F>
void each_tap(const ConvShape& s, const F& f) {
  for (std::int64_t y = 0; y < s.n * s.p * s.q; ++y)
    for (std::int64_t tap = 0; tap < s.r * s.s; ++tap) {
      const std::int64_t h = y / s.q % s.p * s.stride_h - s.pad_h + tap / s.s * s.dilation_h;
      const std::int64_t w = y % s.q * s.stride_w - s.pad_w + tap % s.s * s.dilation_w;
      if (h >= 0 && h < s.h && w >= 0 && w < s.w) f((y / s.q / s.p * s.h + h) * s.w + w, y, tap);
    }
}

float seen(float w) { return static_cast<float>(bf16(w)); }
std::size_t at(std::int64_t i) { return static_cast<std::size_t>(i); }

std::vector<double> plain_forward(const Problem& p) {
  const ConvShape& s = p.conv.shape;
  std::vector<double> y(p.dy.size());
  for (std::size_t i = 0; i < y.size(); ++i) y[i] = static_cast<double>(p.b[i % at(s.k)]);
  each_tap(s, [&](std::int64_t from, std::int64_t to, std::int64_t tap) {
    for (std::int64_t k = 0; k < s.k; ++k) {
      double sum = 0;
      for (std::int64_t c = 0; c < s.c; ++c)
        sum += static_cast<double>(static_cast<float>(p.x[at(from * s.c + c)])) *
               static_cast<double>(seen(p.w[at((k * s.r * s.s + tap) * s.c + c)]));
      y[at(to * s.k + k)] += sum;
    }
  });
  return y;
}

std::vector<double> plain_backward_data(const Problem& p) {
  const ConvShape& s = p.conv.shape;
  std::vector<double> dx(p.x.size());
  each_tap(s, [&](std::int64_t to, std::int64_t from, std::int64_t tap) {
    for (std::int64_t k = 0; k < s.k; ++k) {
      const double dy = static_cast<float>(p.dy[at(from * s.k + k)]);
      for (std::int64_t c = 0; c < s.c; ++c)
        dx[at(to * s.c + c)] += dy * static_cast<double>(seen(p.w[at((k * s.r * s.s + tap) * s.c + c)]));
    }
  });
  return dx;
}

void expect_near(const std::vector<bf16>& found, const std::vector<double>& expected, const std::string& what) {
  ASSERT_EQ(found.size(), expected.size());
  for (std::size_t i = 0; i < found.size(); ++i) {
    const double allowed = 1e-4 + std::abs(expected[i]) * 0.0041;  // half a unit of bf16, and the sum's rounding
    ASSERT_NEAR(static_cast<float>(found[i]), expected[i], allowed) << what << " at " << i;
  }
}

std::string text_of(const ConvShape& s) {
  return "n " + std::to_string(s.n) + " " + std::to_string(s.h) + "x" + std::to_string(s.w) + "x" +
         std::to_string(s.c) + " k " + std::to_string(s.k) + " " + std::to_string(s.r) + "x" + std::to_string(s.s);
}

class DnnDirect : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!has_paired_gradients()) GTEST_SKIP() << "needs AVX-512 with bf16 products";
  }
};

TEST_F(DnnDirect, MatchesPlainLoops) {
  for (const ConvShape& s : shapes()) {
    const Problem p(s);
    ASSERT_TRUE(is_direct(p.conv, Pass::forward) && is_direct(p.conv, Pass::backward_data)) << text_of(s);
    auto expected = plain_forward(p);
    std::vector<bf16> y(p.dy.size(), bf16(9.0f)), dx(p.x.size(), bf16(9.0f));
    direct_forward(p.conv, p.x.data(), p.w.data(), p.b.data(), y.data());
    expect_near(y, expected, text_of(s) + " forward");
    for (std::size_t i = 0; i < expected.size(); ++i) expected[i] -= static_cast<double>(p.b[i % at(s.k)]);
    direct_forward(p.conv, p.x.data(), p.w.data(), nullptr, y.data());
    expect_near(y, expected, text_of(s) + " forward without bias");
    direct_backward_data(p.conv, p.dy.data(), p.w.data(), dx.data());
    expect_near(dx, plain_backward_data(p), text_of(s) + " backward data");
  }
}

TEST_F(DnnDirect, TakesNarrowFilters) {
  Problem p(shape(8, 3, 3, 128, 128, 3, 3, 1, 1));
  std::vector<bf16> narrow, from_wide(p.dy.size()), from_narrow(p.dy.size());
  for (const float w : p.w) narrow.push_back(bf16(w));
  direct_forward(p.conv, p.x.data(), p.w.data(), nullptr, from_wide.data());
  p.conv.weights = DType::bf16;
  direct_forward(p.conv, p.x.data(), narrow.data(), nullptr, from_narrow.data());
  for (std::size_t i = 0; i < from_wide.size(); ++i) ASSERT_EQ(from_wide[i].bits, from_narrow[i].bits) << i;
}

TEST_F(DnnDirect, GivesTheSameBitsForEveryTeamSize) {
  const int before = threads();
  const Problem p(shape(16, 4, 4, 128, 256, 3, 3, 1, 1));
  std::vector<std::vector<bf16>> found;
  for (const int team : {1, 2, 5}) {
    set_threads(team);
    std::vector<bf16> y(p.dy.size()), dx(p.x.size());
    direct_forward(p.conv, p.x.data(), p.w.data(), p.b.data(), y.data());
    direct_backward_data(p.conv, p.dy.data(), p.w.data(), dx.data());
    y.insert(y.end(), dx.begin(), dx.end());
    found.push_back(y);
  }
  set_threads(before);
  for (const auto& other : found) EXPECT_TRUE(std::ranges::equal(other, found[0], {}, &bf16::bits, &bf16::bits));
}

TEST_F(DnnDirect, TakesSmallImagesOfFullBlocks) {
  const auto taken = [](const ConvShape& s, Pass pass = Pass::forward) {
    return is_direct({.shape = s, .activations = DType::bf16}, pass);
  };
  EXPECT_TRUE(taken(shape(32, 4, 4, 256, 256, 3, 3, 1, 1)));
  EXPECT_FALSE(taken(shape(32, 4, 4, 256, 256, 3, 3, 1, 1), Pass::backward_weights));
  EXPECT_FALSE(is_direct({.shape = shape(32, 4, 4, 256, 256, 3, 3, 1, 1)}, Pass::forward));
  EXPECT_FALSE(taken(shape(12, 4, 4, 256, 256, 3, 3, 1, 1)));
  EXPECT_FALSE(taken(shape(32, 4, 4, 256, 256, 1, 1, 1, 0)));
  EXPECT_FALSE(taken(shape(32, 4, 4, 264, 256, 3, 3, 1, 1)));
  EXPECT_FALSE(taken(shape(32, 4, 4, 256, 272, 3, 3, 1, 1)));
  EXPECT_FALSE(taken(shape(32, 8, 8, 256, 256, 3, 3, 1, 1)));
  EXPECT_TRUE(taken(shape(32, 8, 8, 256, 256, 3, 3, 1, 1), Pass::backward_data));
  EXPECT_FALSE(taken(shape(32, 28, 28, 256, 256, 3, 3, 1, 1), Pass::backward_data));
}

TEST_F(DnnDirect, IsWhatTheFacadeRuns) {
  if (!available() || !has_hardware_bf16()) GTEST_SKIP() << "the library declines bf16";
  const ConvProblem conv{.shape = shape(8, 4, 4, 128, 128, 3, 3, 1, 1), .activations = DType::bf16};
  EXPECT_EQ(implementation(conv, Pass::forward), "direct:avx512_core_bf16");
  EXPECT_EQ(implementation(conv, Pass::backward_data), "direct:avx512_core_bf16");
}

}  // namespace
}  // namespace hearth::cpu::dnn
