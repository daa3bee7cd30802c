// SPDX-License-Identifier: Apache-2.0
// Filter gradients by pairs of images against plain loops in double.
#include "ops/conv/paired_bf16.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "core/cpu/parallel.h"
#include "core/half.h"
#include "core/random.h"

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

// Cases that differ in what they cut off, skip or repeat.
std::vector<ConvShape> shapes() {
  std::vector<ConvShape> all{
      shape(2, 5, 7, 32, 8, 3, 3, 1, 1),  shape(7, 2, 2, 64, 16, 3, 3, 1, 1),
      shape(6, 9, 8, 32, 16, 3, 3, 2, 1), shape(3, 1, 1, 32, 8, 3, 3, 1, 1),
      shape(4, 1, 3, 32, 8, 5, 5, 1, 2),  shape(5, 8, 8, 32, 24, 3, 3, 1, 2, 2),
      shape(4, 6, 5, 96, 40, 2, 3, 1, 0), shape(3, 11, 9, 32, 8, 1, 3, 3, 2),
      shape(9, 64, 64, 64, 8, 3, 3, 1, 1)};  // the last in three chunks, an odd image in the last
  ConvShape uneven = shape(4, 7, 7, 32, 8, 3, 3, 2, 1);
  uneven.pad_h = 0, uneven.stride_w = 1, uneven.q = 7;
  uneven.p = 4;  // a row of padding below only
  all.push_back(uneven);
  return all;
}

struct Problem {
  ConvProblem conv;
  std::vector<bf16> x, dy;
};

Problem make_problem(const ConvShape& s, DType weights) {
  Problem problem{{.shape = s, .activations = DType::bf16, .weights = weights}, {}, {}};
  Random random(3, 0);
  const auto fill = [&](std::vector<bf16>& values, std::int64_t size) {
    for (std::int64_t i = 0; i < size; ++i) values.push_back(bf16(static_cast<float>(random.uniform(-1.0, 1.0))));
  };
  fill(problem.x, s.n * s.h * s.w * s.c);
  fill(problem.dy, s.n * s.p * s.q * s.k);
  return problem;
}

std::vector<double> by_plain_loops(const Problem& problem) {
  const ConvShape& s = problem.conv.shape;
  std::vector<double> dw(static_cast<std::size_t>(s.k * s.r * s.s * s.c));
  const auto value = [](const std::vector<bf16>& v, std::int64_t i) {
    return static_cast<float>(v[static_cast<std::size_t>(i)]);
  };
  std::vector<float> row(static_cast<std::size_t>(s.c));
  for (std::int64_t i = 0; i < s.n * s.p * s.q; ++i)
    for (std::int64_t tap = 0; tap < s.r * s.s; ++tap) {
      const std::int64_t h = i / s.q % s.p * s.stride_h - s.pad_h + tap / s.s * s.dilation_h;
      const std::int64_t w = i % s.q * s.stride_w - s.pad_w + tap % s.s * s.dilation_w;
      if (h < 0 || h >= s.h || w < 0 || w >= s.w) continue;
      const std::int64_t pixel = (i / s.q / s.p * s.h + h) * s.w + w;
      for (std::int64_t c = 0; c < s.c; ++c) row[static_cast<std::size_t>(c)] = value(problem.x, pixel * s.c + c);
      for (std::int64_t k = 0; k < s.k; ++k) {
        const double dy = value(problem.dy, i * s.k + k);
        double* sums = dw.data() + (k * s.r * s.s + tap) * s.c;
        for (std::int64_t c = 0; c < s.c; ++c) sums[c] += dy * static_cast<double>(row[static_cast<std::size_t>(c)]);
      }
    }
  return dw;
}

std::string text_of(const ConvShape& s) {
  return "n " + std::to_string(s.n) + " " + std::to_string(s.h) + "x" + std::to_string(s.w) + "x" +
         std::to_string(s.c) + " k " + std::to_string(s.k) + " " + std::to_string(s.r) + "x" + std::to_string(s.s);
}

class DnnPaired : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!has_paired_gradients()) GTEST_SKIP() << "needs AVX-512 with bf16 products";
  }
};

TEST_F(DnnPaired, MatchesPlainLoops) {
  for (const ConvShape& s : shapes()) {
    const Problem problem = make_problem(s, DType::f32);
    ASSERT_TRUE(is_pairable(problem.conv)) << text_of(s);
    const auto expected = by_plain_loops(problem);
    std::vector<float> dw(expected.size(), 7.0f), db(static_cast<std::size_t>(s.k));
    paired_backward_weights(problem.conv, problem.x.data(), problem.dy.data(), dw.data(), db.data());
    const double allowed = 2e-7 * std::sqrt(static_cast<double>(s.n * s.p * s.q)) * 32;
    for (std::size_t i = 0; i < dw.size(); ++i) ASSERT_NEAR(dw[i], expected[i], allowed) << text_of(s) << " at " << i;
    for (std::int64_t k = 0; k < s.k; ++k) {
      double sum = 0;
      for (std::int64_t i = k; i < s.n * s.p * s.q * s.k; i += s.k)
        sum += static_cast<float>(problem.dy[static_cast<std::size_t>(i)]);
      ASSERT_NEAR(db[static_cast<std::size_t>(k)], sum, 1e-3) << text_of(s);
    }
  }
}

TEST_F(DnnPaired, RoundsOnceIntoNarrowFilters) {
  const ConvShape s = shape(6, 6, 6, 32, 16, 3, 3, 1, 1);
  const Problem wide = make_problem(s, DType::f32), narrow = make_problem(s, DType::bf16);
  std::vector<float> dw(static_cast<std::size_t>(s.k * s.r * s.s * s.c));
  std::vector<bf16> rounded(dw.size());
  paired_backward_weights(wide.conv, wide.x.data(), wide.dy.data(), dw.data(), nullptr);
  paired_backward_weights(narrow.conv, wide.x.data(), wide.dy.data(), rounded.data(), nullptr);
  for (std::size_t i = 0; i < dw.size(); ++i) ASSERT_EQ(rounded[i].bits, bf16(dw[i]).bits);
}

TEST_F(DnnPaired, GivesTheSameBitsForEveryTeamSize) {
  const int before = threads();
  for (const ConvShape& s : {shape(8, 9, 9, 64, 32, 3, 3, 1, 1), shape(9, 64, 64, 64, 8, 3, 3, 1, 1)}) {
    const Problem problem = make_problem(s, DType::f32);
    std::vector<float> expected(static_cast<std::size_t>(s.k * s.r * s.s * s.c)), found(expected.size());
    set_threads(1);
    paired_backward_weights(problem.conv, problem.x.data(), problem.dy.data(), expected.data(), nullptr);
    for (const int team : {2, 3, 5}) {
      set_threads(team);
      paired_backward_weights(problem.conv, problem.x.data(), problem.dy.data(), found.data(), nullptr);
      EXPECT_TRUE(found == expected) << team << " threads, " << text_of(s);
    }
  }
  set_threads(before);
}

TEST_F(DnnPaired, TakesOnlyWhatFillsItsTiles) {
  const auto taken = [](const ConvShape& s, DType activations = DType::bf16) {
    return is_pairable({.shape = s, .activations = activations});
  };
  EXPECT_TRUE(taken(shape(2, 8, 8, 32, 8, 3, 3, 1, 1)));
  EXPECT_FALSE(taken(shape(2, 8, 8, 32, 8, 3, 3, 1, 1), DType::f32));
  EXPECT_FALSE(taken(shape(2, 8, 8, 16, 8, 3, 3, 1, 1)));
  EXPECT_FALSE(taken(shape(2, 8, 8, 32, 12, 3, 3, 1, 1)));
  EXPECT_FALSE(taken(shape(2, 8, 8, 32, 8, 1, 1, 1, 0)));
  EXPECT_FALSE(taken(shape(1, 8, 8, 32, 8, 3, 3, 1, 1)));
  EXPECT_FALSE(taken(shape(8, 2, 2, 512, 512, 3, 3, 1, 1)));
  EXPECT_TRUE(taken(shape(16, 2, 2, 512, 512, 3, 3, 1, 1)));
  ConvShape grouped = shape(2, 8, 8, 64, 16, 3, 3, 1, 1);
  grouped.groups = 2;
  EXPECT_FALSE(taken(grouped));
}

TEST_F(DnnPaired, IsWhatTheFacadeRuns) {
  if (!available() || !has_hardware_bf16()) GTEST_SKIP() << "the library declines bf16";
  const ConvProblem conv = make_problem(shape(4, 8, 8, 64, 64, 3, 3, 1, 1), DType::f32).conv;
  EXPECT_EQ(implementation(conv, Pass::backward_weights), "paired:avx512_core_bf16");
}

}  // namespace
}  // namespace hearth::cpu::dnn
