// SPDX-License-Identifier: Apache-2.0
#include "dist/strategy/quantized.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "core/error.h"
#include "dist/process_group.h"
#include "tests/dist/strategy/gradients.h"
#include "tests/support/ranks.h"

namespace hearth::dist::strategy_test {
namespace {

constexpr std::int64_t sizes[] = {1, 7, 31, 32, 33, 63, 64, 65, 127, 200, 255, 256, 257, 1000, 1024, 4096};

std::vector<float> draw_numbers(std::int64_t n, std::uint64_t seed) {
  Random random(seed, 3);
  std::vector<float> x;
  for (std::int64_t i = 0; i < n; ++i) x.push_back(static_cast<float>(random.normal()));
  return x;
}

/// Code and what is left of x.
std::vector<std::byte> code_of(const Codec& codec, std::vector<float>& x, bool remains = true, const Draw& draw = {}) {
  std::vector<std::byte> code(static_cast<std::size_t>(codec.bytes(static_cast<std::int64_t>(x.size()))));
  codec.encode(x.data(), static_cast<std::int64_t>(x.size()), code.data(), remains, draw);
  return code;
}
std::vector<float> decoded(const Codec& codec, const std::vector<std::byte>& code, std::int64_t n) {
  std::vector<float> y(static_cast<std::size_t>(n), 77);
  codec.decode(code.data(), n, y.data(), false);
  return y;
}

TEST(SignCodec, IsTheMeansOfBothSigns) {
  std::vector<float> x{1, -2, 3, 0, -4};
  const std::vector<std::byte> code = code_of(*sign_codec(), x);
  ASSERT_EQ(code.size(), 16U);
  float scales[2];
  std::memcpy(scales, code.data(), 8);
  EXPECT_EQ(scales[0], 4.0F / 3);
  EXPECT_EQ(scales[1], -3);
  EXPECT_EQ(std::to_integer<int>(code[8]), 0b10010);
  EXPECT_EQ(x, (std::vector<float>{1 - 4.0F / 3, 1, 3 - 4.0F / 3, -4.0F / 3, -1}));
}

TEST(SignCodec, WhatItLeavesOutIsTheRestToTheBit) {
  for (const std::int64_t n : sizes) {
    const std::vector<float> x = draw_numbers(n, 1);
    std::vector<float> left = x;
    const auto codec = sign_codec();
    const std::vector<float> y = decoded(*codec, code_of(*codec, left), n);
    double sum = 0;
    for (std::size_t i = 0; i < x.size(); ++i) {
      EXPECT_EQ(left[i], x[i] - y[i]) << i << " of " << n;
      EXPECT_EQ(std::signbit(y[i]), x[i] < 0);
      sum += static_cast<double>(left[i]);
    }
    EXPECT_NEAR(sum, 0, 1e-4 * std::sqrt(static_cast<double>(n))) << "the means keep the sum";
    std::vector<float> again = x;
    (void)code_of(*codec, again, false);
    EXPECT_EQ(again, x);
  }
}

TEST(Codecs, AddWhatTheyDecode) {
  for (const auto make : {sign_codec, int8_codec})
    for (const std::int64_t n : sizes) {
      std::vector<float> x = draw_numbers(n, 2), y = draw_numbers(n, 3);
      const auto codec = make();
      const std::vector<std::byte> code = code_of(*codec, x);
      const std::vector<float> before = y, alone = decoded(*codec, code, n);
      codec->decode(code.data(), n, y.data(), true);
      // A sum with a product may be rounded once.
      for (std::size_t i = 0; i < y.size(); ++i) EXPECT_NEAR(y[i], before[i] + alone[i], 1e-6F) << i << " of " << n;
    }
}

TEST(Codecs, ANumberThatIsNotFiniteComesOut) {
  for (const auto make : {sign_codec, int8_codec})
    for (const float bad : {std::numeric_limits<float>::infinity(), -std::numeric_limits<float>::infinity(),
                            std::numeric_limits<float>::quiet_NaN(), -std::numeric_limits<float>::quiet_NaN()})
      for (const std::int64_t n : sizes) {
        std::vector<float> x = draw_numbers(n, 2);
        x[x.size() / 2] = bad;
        const auto codec = make();
        EXPECT_FALSE(std::isfinite(decoded(*codec, code_of(*codec, x), n)[x.size() / 2])) << bad << ' ' << n;
      }
}

TEST(Int8Codec, RoundsToAMultipleBesideTheNumber) {
  for (const std::int64_t n : sizes) {
    const std::vector<float> x = draw_numbers(n, 4);
    float largest = 0;
    for (const float value : x) largest = std::max(largest, std::abs(value));
    std::vector<float> left = x;
    const auto codec = int8_codec();
    const std::vector<float> y = decoded(*codec, code_of(*codec, left), n);
    for (std::size_t i = 0; i < x.size(); ++i) {
      EXPECT_LT(std::abs(x[i] - y[i]), largest / 127 * 1.0001F) << i << " of " << n;
      EXPECT_NEAR(left[i], x[i] - y[i], 1e-6F * largest);
    }
  }
}

TEST(Int8Codec, MultiplesStayWhatTheyAre) {
  std::vector<float> x;
  for (int i = -127; i <= 127; ++i) x.push_back(0.25F * static_cast<float>(i));
  const auto codec = int8_codec();
  for (std::uint64_t update = 0; update < 20; ++update) {
    std::vector<float> left = x;
    const std::vector<std::byte> code = code_of(*codec, left, true, {.seed = 9, .update = update});
    EXPECT_EQ(decoded(*codec, code, static_cast<std::int64_t>(x.size())), x);
  }
  std::vector<float> zeros(100, 0), tiny(100, 1e-42F);
  EXPECT_EQ(decoded(*codec, code_of(*codec, zeros), 100), std::vector<float>(100, 0));
  EXPECT_EQ(decoded(*codec, code_of(*codec, tiny), 100), std::vector<float>(100, 0));
}

TEST(Int8Codec, IsRightOnAverage) {
  constexpr std::int64_t n = 300, draws = 4000;
  const std::vector<float> x = draw_numbers(n, 5);
  const auto codec = int8_codec();
  std::vector<double> sum(x.size());
  float scale = 0;
  for (std::int64_t update = 0; update < draws; ++update) {
    std::vector<float> left = x;
    const std::vector<std::byte> code = code_of(*codec, left, false, {.update = static_cast<std::uint64_t>(update)});
    std::memcpy(&scale, code.data(), sizeof(scale));
    const std::vector<float> y = decoded(*codec, code, n);
    for (std::size_t i = 0; i < x.size(); ++i) sum[i] += static_cast<double>(y[i]);
  }
  // Six standard deviations of a mean of two values that are a multiple apart.
  const double bound = 6 * 0.5 * static_cast<double>(scale) / std::sqrt(static_cast<double>(draws));
  for (std::size_t i = 0; i < x.size(); ++i)
    EXPECT_NEAR(sum[i] / static_cast<double>(draws), static_cast<double>(x[i]), bound);
}

TEST(Int8Codec, DrawsByPhilox) {
  constexpr std::int64_t n = 512;
  // Between two multiples: the byte is the drawn number's comparison.
  std::vector<float> x(n, 10.25F);
  x[0] = 127;
  const Draw draw{.seed = 0x123456789ABCDEF, .update = 0x300000007, .stream = 5, .first = 4096};
  const std::vector<std::byte> code = code_of(*int8_codec(), x, false, draw);
  for (std::int64_t i = 1; i < n; ++i) {
    // 32 counters for 256 elements; each word serves 64 of them, 16 bits each.
    const std::int64_t lane = i % 32, part = i % 256 / 32;
    const auto words =
        philox({static_cast<std::uint32_t>(4096 / 8 + i / 256 * 32 + lane), 5, 7, 3}, {0x89ABCDEF, 0x01234567});
    const std::uint32_t sixteen = words[static_cast<std::size_t>(part / 2)] >> (part % 2 * 16) & 0xFFFF;
    EXPECT_EQ(std::to_integer<int>(code[static_cast<std::size_t>(4 + i)]), sixteen >= 0xC000 ? 11 : 10) << i;
  }
}

TEST(Quantized, RanksDrawNumbersOfTheirOwn) {
  const auto failures = test::failures_of_ranks(loopback_groups(2), [](Collective& group) {
    Parameters parameters(Shapes{{4096}});
    DataParallel parallel(group, *parameters.flat, options_with([](const StrategyContext& context) {
                            return std::make_unique<Quantized>(context, int8_codec(), QuantizedOptions{});
                          }));
    // The same on both ranks, so that equal draws would give 20 or 22; what sets the scale is one rank's alone.
    std::vector<Tensor> gradients{Tensor::full({4096}, 10.5)};
    for (std::int64_t i = 0; i < 4096; i += 1024) {
      gradients[0].data<float>()[i] = group.rank() == 0 ? 127 : 0;
      gradients[0].data<float>()[i + 1] = group.rank() == 1 ? 127 : 0;
    }
    parameters.backward_of(gradients);
    parallel.reduce();
    const std::vector<float> sums = parameters.gradients();
    const auto odd = std::count(sums.begin(), sums.end(), 21.0F);
    EXPECT_GT(odd, 400);
  });
  for (const std::string& failure : failures) EXPECT_EQ(failure, "");
}

// What makes the conformance test of means pass.
TEST(Quantized, WithoutFeedbackSignsLoseTheGradient) {
  const auto failures = test::failures_of_ranks(loopback_groups(2), [](Collective& group) {
    for (const bool feedback : {true, false}) {
      Parameters parameters(Shapes{{512}});
      DataParallel parallel(group, *parameters.flat, options_with([&](const StrategyContext& context) {
                              return std::make_unique<Quantized>(context, sign_codec(),
                                                                 QuantizedOptions{.error_feedback = feedback});
                            }));
      const std::vector<Tensor> gradients = parameters.draw(0, 0);
      std::vector<double> sum(512);
      for (int step = 0; step < 200; ++step) {
        parameters.backward_of(gradients);
        parallel.reduce();
        parallel.update_made();
        const std::vector<float> sums = parameters.gradients();
        for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += static_cast<double>(sums[i]);
      }
      double error = 0;
      for (std::size_t i = 0; i < sum.size(); ++i)
        error = std::max(error, std::abs(sum[i] / 200 - 2 * static_cast<double>(gradients[0].data<const float>()[i])));
      EXPECT_EQ(error < 0.012, feedback) << error;
      EXPECT_EQ(error > 0.02, !feedback) << error;
    }
  });
  for (const std::string& failure : failures) EXPECT_EQ(failure, "");
}

TEST(Quantized, RefusesOtherGradientsAndBlocks) {
  const auto failures = test::failures_of_ranks(loopback_groups(1), [](Collective& group) {
    const auto with_block = [](std::int64_t block) {
      return options_with([block](const StrategyContext& context) {
        return std::make_unique<Quantized>(context, sign_codec(), QuantizedOptions{.block = block});
      });
    };
    Parameters parameters(Shapes{{10}}), doubles(Shapes{{10}}, DType::f64);
    for (const std::int64_t block : {0, 32, 100, 4160})
      EXPECT_THROW(DataParallel(group, *parameters.flat, with_block(block)), ConfigError) << block;
    EXPECT_THROW(DataParallel(group, *doubles.flat, with_block(64)), DTypeError);
    DataParallelOptions wired = with_block(64), zero = with_block(64);
    wired.wire = DType::bf16;
    zero.zero = 1;
    EXPECT_THROW(DataParallel(group, *parameters.flat, wired), ConfigError);
    EXPECT_THROW(DataParallel(group, *parameters.flat, zero), ConfigError);
  });
  for (const std::string& failure : failures) EXPECT_EQ(failure, "");
}

}  // namespace
}  // namespace hearth::dist::strategy_test
