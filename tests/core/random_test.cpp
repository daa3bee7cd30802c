// SPDX-License-Identifier: Apache-2.0
// Philox against the published vectors, and the properties the framework relies on.
#include "core/random.h"

#include <gtest/gtest.h>

namespace hearth::random_test {
namespace {

// Known answers of the reference implementation (Random123, philox4x32_10).
TEST(Philox, KnownAnswers) {
  EXPECT_EQ(philox({0, 0, 0, 0}, {0, 0}),
            (std::array<std::uint32_t, 4>{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  EXPECT_EQ(philox({0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff}, {0xffffffff, 0xffffffff}),
            (std::array<std::uint32_t, 4>{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(philox({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}),
            (std::array<std::uint32_t, 4>{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

TEST(Random, IsAFunctionOfItsAddress) {
  Random a(42, 3, 7), b(42, 3, 7), other(42, 3, 8);
  bool differs = false;
  for (int i = 0; i < 100; ++i) {
    const std::uint64_t value = a.next_u64();
    EXPECT_EQ(value, b.next_u64());
    differs = differs || value != other.next_u64();
  }
  EXPECT_TRUE(differs);
}

TEST(Random, UniformAndNormalHaveTheRightMoments) {
  Random random(1, 0);
  double sum = 0, normal_sum = 0, normal_squares = 0;
  std::array<int, 7> counts{};
  constexpr int n = 200000;
  for (int i = 0; i < n; ++i) {
    const double u = random.uniform();
    ASSERT_GE(u, 0);
    ASSERT_LT(u, 1);
    sum += u;
    const double z = random.normal();
    normal_sum += z;
    normal_squares += z * z;
    ++counts[random.below(7)];
  }
  EXPECT_NEAR(sum / n, 0.5, 0.005);
  EXPECT_NEAR(normal_sum / n, 0, 0.01);
  EXPECT_NEAR(normal_squares / n, 1, 0.02);
  for (const int count : counts) EXPECT_NEAR(count, n / 7.0, 700);
}

TEST(RandomScope, NumbersOpsWithinAStep) {
  const RandomScope outer(9, 4);
  EXPECT_EQ(next_random_key().op, 0u);
  EXPECT_EQ(next_random_key().op, 1u);
  {
    const RandomScope inner(9, 5);
    EXPECT_EQ(next_random_key().step, 5u);
  }
  const RandomKey key = next_random_key();
  EXPECT_EQ(key.op, 2u);
  EXPECT_EQ(key.step, 4u);
}

}  // namespace
}  // namespace hearth::random_test
