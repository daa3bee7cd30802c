// SPDX-License-Identifier: Apache-2.0
#include "ops/pointwise/dropout.h"

#include <cmath>
#include <limits>

#include "core/cpu/parallel.h"
#include "tests/support/op_test.h"

namespace hearth::test::dropout_test {
namespace {

OP_TEST(Dropout) {
  for (const Shape& shape : {Shape{}, {0, 3}, {1}, {63}, {3, 129}, {20000}}) {
    for (const double p : {0.1, 0.5, 0.9}) check([&](Draw& draw) { return dropout(draw.normal(shape), p, true); });
  }
}

OP_TEST(DropoutIsTheIdentityOutsideTraining) {
  check([](Draw& draw) { return dropout(draw.normal({5}), 0.5, false); });
  check([](Draw& draw) { return dropout(draw.normal({5}), 0.0, true); });
}

std::vector<double> ones_dropped(std::int64_t n, double p, std::uint64_t seed, std::uint64_t step) {
  const RandomScope scope(seed, step);
  return dropout(Tensor::full({n}, 1.0), p, true).to_doubles();
}

TEST(Dropout, MatchesTheReferenceGeneratorElementByElement) {
  const std::uint64_t seed = 0x123456789abcdef0, step = (std::uint64_t{5} << 32) + 9;
  const std::vector<double> y = ones_dropped(200, 0.25, seed, step);
  for (std::uint32_t i = 0; i < 200; ++i) {
    const std::uint32_t block = i / 64 * 16 + i % 16;
    const auto words = philox({block, 0, 9, 5}, {0x9abcdef0u, 0x12345678u});
    EXPECT_EQ(y[i] != 0.0, words[i % 64 / 16] >= 0x40000000u) << i;
  }
}

TEST(Dropout, DropsTheStatedShareAndKeepsTheExpectation) {
  const std::int64_t n = 200000;
  for (const double p : {0.1, 0.5, 0.8}) {
    double kept = 0;
    for (const double value : ones_dropped(n, p, 7, 3)) {
      EXPECT_TRUE(value == 0.0 || std::abs(value - 1 / (1 - p)) < 1e-6);
      kept += value != 0.0;
    }
    // Five standard deviations of the binomial count.
    EXPECT_NEAR(kept, (1 - p) * n, 5 * std::sqrt(p * (1 - p) * n));
  }
}

TEST(Dropout, OtherKeysGiveOtherChoices) {
  const std::vector<double> y = ones_dropped(1000, 0.5, 1, 1);
  EXPECT_EQ(y, ones_dropped(1000, 0.5, 1, 1));
  EXPECT_NE(y, ones_dropped(1000, 0.5, 2, 1));
  EXPECT_NE(y, ones_dropped(1000, 0.5, 1, 2));
  const RandomScope scope(1, 1);
  const Tensor x = Tensor::full({1000}, 1.0);
  const std::vector<double> first = dropout(x, 0.5, true).to_doubles();
  EXPECT_EQ(y, first);
  EXPECT_NE(first, dropout(x, 0.5, true).to_doubles());
}

// Parts of every length, so that they begin within a strip of 64 elements.
TEST(DropoutOnDevices, ABatchInPartsDrawsWhatItDrawsInOnePiece) {
  std::vector<Device> devices{Device{}};
  if (device_count(DeviceType::cuda) > 0) devices.push_back({DeviceType::cuda, 0});
  for (const Device device : devices) {
    const auto dropped = [&](std::int64_t first, std::int64_t count) {
      const RandomScope scope(7, 3, {first, count});
      return dropout(Tensor::full({count, 13}, 1.0, DType::f32, device), 0.5, true).to_doubles();
    };
    const std::vector<double> whole = dropped(0, 40);
    std::vector<double> parts;
    for (const auto& [first, count] : {std::pair{0, 16}, {16, 16}, {32, 5}, {37, 3}}) {
      const std::vector<double> part = dropped(first, count);
      parts.insert(parts.end(), part.begin(), part.end());
    }
    EXPECT_EQ(parts, whole) << device;
    // What has no share for each sample, as a weight, is drawn alike in all parts.
    const auto weight = [&](std::int64_t first) {
      const RandomScope scope(7, 3, {first, 16});
      return dropout(Tensor::full({37}, 1.0, DType::f32, device), 0.5, true).to_doubles();
    };
    EXPECT_EQ(weight(0), weight(16));
    // Nor what only happens to divide into the samples: by its first axis, or because the caller says so.
    const auto shared = [&](const Shape& shape, std::int64_t first, bool per_sample) {
      const RandomScope scope(7, 3, {first, 4});
      return dropout(Tensor::full(shape, 1.0, DType::f32, device), 0.5, true, {.per_sample = per_sample}).to_doubles();
    };
    EXPECT_EQ(shared({37, 8}, 0, true), shared({37, 8}, 4, true)) << device;
    EXPECT_EQ(shared({16, 8}, 0, false), shared({16, 8}, 4, false)) << device;
    EXPECT_NE(shared({16, 8}, 0, true), shared({16, 8}, 4, true)) << device;
  }
}

TEST(DropoutRefusal, Arguments) {
  const Tensor x = Tensor::zeros({2});
  refuses<UsageError>("dropout", [&] { return dropout(x, 1.0, true); });
  refuses<UsageError>("dropout", [&] { return dropout(x, -0.1, true); });
  refuses<UsageError>("dropout", [&] { return dropout(x, 2.0, false); });
  refuses<UsageError>("dropout", [&] { return dropout(x, NAN, true); });
  refuses<UsageError>("dropout", [&] { return dropout(Tensor(), 0.5, true); });
  refuses<DTypeError>("dropout", [&] { return dropout(Tensor::zeros({2}, DType::i64), 0.5, true); });
}

}  // namespace
}  // namespace hearth::test::dropout_test
