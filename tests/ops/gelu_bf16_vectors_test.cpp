// SPDX-License-Identifier: Apache-2.0
// Of every number of bf16 in gelu_rounding_test.cpp; here what lies around them: ends of rows, sums, operands in place.
#include "ops/epilogue/gelu_bf16_vectors.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "core/cpu/amx.h"
#include "core/random.h"

namespace hearth::kernels::gelu_bf16_vectors_test {
namespace {

constexpr float untouched = 7;

double cumulative(double x) { return 0.5 * std::erfc(-x / std::sqrt(2.0)); }
double slope(double x) { return cumulative(x) + x * std::exp(-0.5 * x * x) / std::sqrt(2 * std::acos(-1.0)); }

std::vector<bf16> numbers(std::int64_t count, std::uint64_t seed) {
  Random random(seed, 0);
  std::vector<bf16> of(static_cast<std::size_t>(count));
  for (bf16& x : of) x = static_cast<bf16>(static_cast<float>(random.uniform(-4, 4)));
  return of;
}

/// The first `count` values are near `wanted`, and what lies behind is untouched.
template <class F>
void expect_all(const std::vector<bf16>& found, std::int64_t count, F&& wanted) {
  for (std::size_t i = 0; i < found.size(); ++i)
    if (static_cast<std::int64_t>(i) < count)
      EXPECT_NEAR(static_cast<float>(found[i]), wanted(i), 0.00403 * std::abs(wanted(i))) << i << " of " << count;
    else
      EXPECT_EQ(static_cast<float>(found[i]), untouched) << i << " of " << count;
}

TEST(GeluBf16Vectors, TakesEveryCount) {
  if (!cpu::amx::has_bf16_vectors()) GTEST_SKIP() << "this processor has no AVX-512 with bf16";
  for (std::int64_t count = 0; count < 100; ++count) {
    std::vector<bf16> x = numbers(count + 40, 1), dy = numbers(count + 40, 2);
    std::fill(x.begin() + count, x.end(), static_cast<bf16>(untouched));
    std::fill(dy.begin() + count, dy.end(), static_cast<bf16>(untouched));
    const std::vector<bf16> of = x, by = dy;
    const auto x_at = [&](std::size_t i) { return static_cast<double>(static_cast<float>(of[i])); };
    gelu_bf16_vectors::gradients(of.data(), dy.data(), dy.data(), count);
    expect_all(dy, count, [&](std::size_t i) { return static_cast<float>(by[i]) * slope(x_at(i)); });
    gelu_bf16_vectors::values(of.data(), x.data(), count);
    expect_all(x, count, [&](std::size_t i) { return x_at(i) * cumulative(x_at(i)); });
  }
}

TEST(GeluBf16Vectors, AddsColumns) {
  if (!cpu::amx::has_bf16_vectors()) GTEST_SKIP() << "this processor has no AVX-512 with bf16";
  for (const std::int64_t rows : {1, 64, 131})
    for (const std::int64_t cols : {1, 31, 32, 77, 256, 4130}) {
      const std::vector<bf16> x = numbers(rows * cols, 1), dy = numbers(rows * cols, 2);
      std::vector<bf16> dpre(x.size() + 40, static_cast<bf16>(untouched));
      std::vector<float> sums(static_cast<std::size_t>(cols) + 40, untouched);
      gelu_bf16_vectors::gradients_and_sums(x.data(), dy.data(), dpre.data(), sums.data(), rows, cols);
      std::vector<double> wanted(static_cast<std::size_t>(cols));
      const auto product = [&](std::size_t i) {
        return static_cast<float>(dy[i]) * slope(static_cast<double>(static_cast<float>(x[i])));
      };
      for (std::size_t i = 0; i < x.size(); ++i) wanted[i % static_cast<std::size_t>(cols)] += product(i);
      expect_all(dpre, rows * cols, product);
      for (std::size_t c = 0; c < sums.size(); ++c)
        EXPECT_NEAR(sums[c], c < wanted.size() ? wanted[c] : untouched, 2e-4 * static_cast<double>(rows)) << c;
    }
}

}  // namespace
}  // namespace hearth::kernels::gelu_bf16_vectors_test
