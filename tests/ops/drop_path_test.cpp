// SPDX-License-Identifier: Apache-2.0
#include "ops/pointwise/drop_path.h"

#include <cmath>
#include <limits>

#include "ops/pointwise/binary.h"
#include "ops/pointwise/dropout.h"
#include "tests/support/devices.h"
#include "tests/support/op_test.h"

namespace hearth::test::drop_path_test {
namespace {

// Samples of one element, of whole packs and of none, and more of them than a strip of random words.
const Shape shapes[] = {{1}, {3, 0}, {0, 3}, {5, 7, 3}, {70, 8}, {130}, {6, 16, 16, 4}, {2, 20001}};

OP_TEST(DropPath) {
  for (const Shape& shape : shapes)
    for (const double p : {0.2, 0.5}) check([&](Draw& draw) { return drop_path(draw.normal(shape), p, true); });
}

OP_TEST(AddDropPath) {
  for (const Shape& shape : shapes)
    check([&](Draw& draw) {
      const Tensor residual = draw.normal(shape);
      return add_drop_path(residual, draw.normal(shape), 0.5, true);
    });
}

OP_TEST(AddDropPathOfATensorToItself) {
  check([&](Draw& draw) {
    const Tensor x = draw.normal({9, 5});
    return add_drop_path(x, x, 0.5, true);
  });
}

OP_TEST(DropPathOutsideTraining) {
  check([](Draw& draw) { return drop_path(draw.normal({4, 3}), 0.5, false); });
  check([](Draw& draw) { return drop_path(draw.normal({4, 3}), 0.0, true); });
  check(
      [](Draw& draw) {
        const Tensor residual = draw.constant({2}, {1, 2});
        return add_drop_path(residual, draw.constant({2}, {4, 8}), 0.5, false);
      },
      [](Draw&) {
        return std::vector<double>{5, 10};
      },
      {.no_gradient = true});
}

TEST(DropPathOnDevices, DropsTheSamplesThatDropoutDropsOfAsManyElements) {
  for (const Device device : devices()) {
    const RandomScope scope(0x123456789abcdef0, (std::uint64_t{5} << 32) + 9);
    const RandomKey position = random_position();
    const Tensor ones = Tensor::full({200, 3}, 1.0, DType::f32, device);
    const std::vector<double> y = drop_path(ones, 0.25, true).to_doubles();
    const RandomScope again(position);
    const std::vector<double> expected = dropout(Tensor::full({200}, 1.0), 0.25, true).to_doubles();
    std::size_t kept = 0;
    for (std::size_t i = 0; i < y.size(); ++i) {
      ASSERT_EQ(y[i], expected[i / 3]) << device << ", element " << i;
      kept += y[i] != 0 ? 1 : 0;
    }
    EXPECT_NEAR(static_cast<double>(kept) / 3, 150, 5 * std::sqrt(0.25 * 0.75 * 200));
  }
}

TEST(DropPathOnDevices, ADroppedBranchLeavesTheResidualEvenFromInfinity) {
  for (const Device device : devices()) {
    const RandomScope scope(3, 1);
    const Tensor residual = Tensor::full({100, 8}, 0.1, DType::f32, device);
    const Tensor x = Tensor::full({100, 8}, std::numeric_limits<double>::infinity(), DType::f32, device);
    int dropped = 0;
    for (const double value : add_drop_path(residual, x, 0.5, true).to_doubles()) {
      ASSERT_TRUE(std::isinf(value) || value == static_cast<double>(0.1f)) << value;
      dropped += std::isinf(value) ? 0 : 1;
    }
    EXPECT_TRUE(dropped > 200 && dropped < 600) << dropped;
  }
}

// And so has the bits of add_layer_norm, whichever of both a compiler would have contracted by itself.
TEST(DropPathOnDevices, ADeviceRoundsASumOnce) {
  if (device_count(DeviceType::cuda) == 0) GTEST_SKIP() << "there is no CUDA device";
  const Device device{DeviceType::cuda, 0};
  std::vector<double> base(4096), branch(base.size());
  for (std::size_t i = 0; i < base.size(); ++i) {
    base[i] = static_cast<float>(std::sin(static_cast<double>(i)));
    branch[i] = static_cast<float>(std::cos(static_cast<double>(3 * i)));
  }
  const Shape shape{64, 64};
  const Tensor residual = Tensor::of<double>(shape, base).to(DType::f32).to(device);
  const Tensor x = Tensor::of<double>(shape, branch).to(DType::f32).to(device);
  const RandomScope scope(3, 1);
  const std::vector<double> sum = add_drop_path(residual, x, 0.3, true).to_doubles();
  const auto factor = static_cast<float>(1.0 / (1.0 - 0.3));
  int kept = 0;
  for (std::size_t i = 0; i < sum.size(); ++i) {
    const auto from = static_cast<float>(base[i]);
    if (sum[i] == base[i]) continue;
    ASSERT_EQ(sum[i], std::fma(static_cast<float>(branch[i]), factor, from)) << "element " << i;
    ++kept;
  }
  EXPECT_GT(kept, 1000);
}

TEST(DropPathOnDevices, ABatchInPartsDrawsWhatItDrawsInOnePiece) {
  for (const Device device : devices()) {
    const auto dropped = [&](std::int64_t first, std::int64_t count) {
      const RandomScope scope(7, 3, {first, count});
      return drop_path(Tensor::full({count, 2}, 1.0, DType::f32, device), 0.5, true).to_doubles();
    };
    const std::vector<double> whole = dropped(0, 150);
    std::vector<double> parts;
    for (const auto& [first, count] : {std::pair{0, 50}, {50, 37}, {87, 63}}) {
      const std::vector<double> part = dropped(first, count);
      parts.insert(parts.end(), part.begin(), part.end());
    }
    EXPECT_EQ(parts, whole) << device;
  }
}

TEST(DropPathRefusal, Arguments) {
  const Tensor x = Tensor::zeros({2, 3});
  for (const double p : {1.0, -0.1, 2.0, std::nan("")}) {
    refuses<UsageError>("drop_path", [&] { return drop_path(x, p, true); });
    refuses<UsageError>("add_drop_path", [&] { return add_drop_path(x, x, p, false); });
  }
  refuses<UsageError>("drop_path", [&] { return drop_path(Tensor(), 0.5, true); });
  refuses<UsageError>("add_drop_path", [&] { return add_drop_path(Tensor(), x, 0.5, true); });
  refuses<UsageError>("add_drop_path", [&] { return add_drop_path(x, Tensor(), 0.5, true); });
  refuses<DTypeError>("drop_path", [&] { return drop_path(Tensor::zeros({2}, DType::i64), 0.5, true); });
  refuses<DTypeError>("add_drop_path", [&] { return add_drop_path(x.to(DType::f64), x, 0.5, true); });
  refuses<ShapeError>("drop_path", [&] { return drop_path(Tensor::zeros({}), 0.5, true); });
  refuses<ShapeError>("add_drop_path", [&] { return add_drop_path(Tensor::zeros({1, 3}), x, 0.5, true); });
}

}  // namespace
}  // namespace hearth::test::drop_path_test
