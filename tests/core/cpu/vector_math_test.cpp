// SPDX-License-Identifier: Apache-2.0
// The f32 elementary functions against f64 ones of the standard library, in units in the last position, over every
// 997th float of the range, and at the edges.
#include "core/cpu/vector_math.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

namespace hearth::cpu::vector_math_test {
namespace {

constexpr float inf = std::numeric_limits<float>::infinity();
constexpr float nan = std::numeric_limits<float>::quiet_NaN();

struct Worst {
  double ulps = 0;
  float at = 0;
};

// Distance in units of the last position of the exact result; below the normal range, in units of the smallest
// subnormal.
double ulps_apart(float found, double exact) {
  const float rounded = static_cast<float>(exact);
  if (std::isinf(rounded) || std::isinf(found)) return found == rounded ? 0 : 1e30;
  const int exponent = std::max(exact == 0 ? -149 : std::ilogb(exact) - 23, -149);
  return std::abs(static_cast<double>(found) - exact) / std::ldexp(1.0, exponent);
}

template <class F, class G>
Worst worst_over(F ours, G exact, float low, float high) {
  Worst worst;
  for (std::uint64_t bits = 0; bits < 0x100000000ull; bits += 997) {
    const float x = std::bit_cast<float>(static_cast<std::uint32_t>(bits));
    if (!(x >= low && x <= high)) continue;
    const double error = ulps_apart(ours(x), exact(static_cast<double>(x)));
    if (!(error <= worst.ulps)) worst = {error, x};
  }
  return worst;
}

TEST(VectorMath, ExpIsWithinTwoUnits) {
  const Worst worst = worst_over([](float x) { return math::exp(x); }, [](double x) { return std::exp(x); }, -120, 100);
  EXPECT_LE(worst.ulps, 2.0) << "at " << worst.at;
}

TEST(VectorMath, ExpOfNegativeIsWithinTwoUnitsOrZero) {
  const auto ours = [](float x) { return math::exp_of_negative(x); };
  const Worst worst = worst_over(
      ours, [](double x) { return std::exp(x); }, -87, 0);
  EXPECT_LE(worst.ulps, 2.0) << "at " << worst.at;
  EXPECT_EQ(ours(0.0f), 1.0f);
  for (const float x : {-87.01f, -1e3f, -3e38f, -inf}) EXPECT_EQ(ours(x), 0.0f) << x;
  EXPECT_TRUE(std::isnan(ours(nan)));
}

TEST(VectorMath, ExpM1IsWithinTwoUnits) {
  const auto ours = [](float x) { return math::expm1(x); };
  const Worst worst = worst_over(
      ours, [](double x) { return std::expm1(x); }, -120, 100);
  EXPECT_LE(worst.ulps, 2.0) << "at " << worst.at;
}

TEST(VectorMath, LogIsWithinTwoUnits) {
  const auto ours = [](float x) { return math::log(x); };
  const Worst worst = worst_over(
      ours, [](double x) { return std::log(x); }, 1e-45f, 3.4e38f);
  EXPECT_LE(worst.ulps, 2.0) << "at " << worst.at;
}

TEST(VectorMath, TanhIsWithinThreeUnits) {
  const auto ours = [](float x) { return math::tanh(x); };
  const Worst worst = worst_over(
      ours, [](double x) { return std::tanh(x); }, -3e38f, 3e38f);
  EXPECT_LE(worst.ulps, 3.0) << "at " << worst.at;
}

TEST(VectorMath, ErfIsWithinTwoUnits) {
  const auto ours = [](float x) { return math::erf(x); };
  const Worst worst = worst_over(
      ours, [](double x) { return std::erf(x); }, -3e38f, 3e38f);
  EXPECT_LE(worst.ulps, 2.0) << "at " << worst.at;
}

TEST(VectorMath, SigmoidIsWithinThreeUnits) {
  const auto ours = [](float x) { return math::sigmoid(x); };
  const auto exact = [](double x) { return 1 / (1 + std::exp(-x)); };
  const Worst worst = worst_over(ours, exact, -87, 100);
  EXPECT_LE(worst.ulps, 3.0) << "at " << worst.at;
}

TEST(VectorMath, EdgesMatchTheStandard) {
  EXPECT_EQ(math::exp(inf), inf);
  EXPECT_EQ(math::exp(-inf), 0.0f);
  EXPECT_EQ(math::exp(0.0f), 1.0f);
  EXPECT_EQ(math::exp(-0.0f), 1.0f);
  EXPECT_EQ(math::expm1(-inf), -1.0f);
  EXPECT_EQ(math::expm1(inf), inf);
  EXPECT_EQ(math::expm1(0.0f), 0.0f);
  EXPECT_EQ(math::log(0.0f), -inf);
  EXPECT_EQ(math::log(-0.0f), -inf);
  EXPECT_EQ(math::log(inf), inf);
  EXPECT_EQ(math::log(1.0f), 0.0f);
  EXPECT_EQ(math::tanh(inf), 1.0f);
  EXPECT_EQ(math::tanh(-inf), -1.0f);
  EXPECT_TRUE(std::signbit(math::tanh(-0.0f)));
  EXPECT_EQ(math::erf(inf), 1.0f);
  EXPECT_EQ(math::erf(-inf), -1.0f);
  EXPECT_EQ(math::sigmoid(-inf), 0.0f);
  EXPECT_EQ(math::sigmoid(inf), 1.0f);
}

TEST(VectorMath, NotANumberStaysSo) {
  EXPECT_TRUE(std::isnan(math::exp(nan)));
  EXPECT_TRUE(std::isnan(math::expm1(nan)));
  EXPECT_TRUE(std::isnan(math::log(nan)));
  EXPECT_TRUE(std::isnan(math::log(-1.0f)));
  EXPECT_TRUE(std::isnan(math::log(-inf)));
  EXPECT_TRUE(std::isnan(math::tanh(nan)));
  EXPECT_TRUE(std::isnan(math::erf(nan)));
  EXPECT_TRUE(std::isnan(math::sigmoid(nan)));
}

}  // namespace
}  // namespace hearth::cpu::vector_math_test
