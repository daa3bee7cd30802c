// SPDX-License-Identifier: Apache-2.0
// Shapes, tensors, conversions and 16-bit types.
#include "core/tensor.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "core/convert.h"

namespace hearth::tensor_test {
namespace {

TEST(Shape, CountsAndPrints) {
  const Shape shape{8, 56, 56, 48};
  EXPECT_EQ(shape.rank(), 4);
  EXPECT_EQ(shape.size(), 8 * 56 * 56 * 48);
  EXPECT_EQ(shape.dim(-1), 48);
  EXPECT_EQ(join_text(shape), "[8, 56, 56, 48]");
  EXPECT_EQ(Shape{}.size(), 1);
  EXPECT_EQ((Shape{3, 0, 5}).size(), 0);
}

TEST(Shape, RefusesWhatCannotBe) {
  EXPECT_THROW((Shape{-1, 3}), ShapeError);
  EXPECT_THROW((Shape{std::int64_t{1} << 32, std::int64_t{1} << 32}), ShapeError);
  EXPECT_THROW((Shape{std::int64_t{1} << 61}), ShapeError);  // the bytes of f64 would overflow
  EXPECT_THROW((Shape{0, std::int64_t{1} << 40, std::int64_t{1} << 40}), ShapeError);
  EXPECT_THROW((Shape{1, 1, 1, 1, 1, 1, 1, 1, 1}), ShapeError);
  EXPECT_THROW((Shape{2, 3}).dim(2), ShapeError);
  EXPECT_THROW((Shape{2, 3}).dim(-3), ShapeError);
  EXPECT_THROW(Shape{}.dim(0), ShapeError);
}

TEST(Shape, Broadcasts) {
  EXPECT_EQ(broadcast_shapes("add", {4, 1, 3}, {5, 1}), (Shape{4, 5, 3}));
  EXPECT_EQ(broadcast_shapes("add", {0, 3}, {1, 3}), (Shape{0, 3}));
  EXPECT_THROW(broadcast_shapes("add", {4, 2}, {3, 2}), ShapeError);
}

TEST(Tensor, HoldsValuesOfEachType) {
  for (const DType dtype : {DType::f32, DType::f64, DType::f16, DType::bf16, DType::i32, DType::i64, DType::u8}) {
    const Tensor tensor = Tensor::full({2, 3}, 3, dtype);
    EXPECT_EQ(tensor.to_doubles(), std::vector<double>(6, 3.0)) << dtype;
    EXPECT_EQ(tensor.byte_size(), 6 * size_of(dtype));
  }
  EXPECT_EQ(Tensor::full({2}, 7, DType::boolean).to_doubles(), (std::vector<double>{1, 1}));
}

TEST(Tensor, AliasesOnCopyAndClonesBytes) {
  const Tensor a = Tensor::of<float>({2}, {1.0f, 2.0f});
  const Tensor alias = a;
  const Tensor copy = a.clone();
  const std::uint64_t version = a.storage()->version();
  a.fill_(5);
  EXPECT_GT(a.storage()->version(), version);
  EXPECT_EQ(alias.to_doubles(), (std::vector<double>{5, 5}));
  EXPECT_EQ(copy.to_doubles(), (std::vector<double>{1, 2}));
  EXPECT_FALSE(a.sole_owner());
  EXPECT_TRUE(copy.sole_owner());
}

TEST(Tensor, ViewsAreCheckedAgainstTheirStorage) {
  const Tensor a = Tensor::of<float>({6}, {0, 1, 2, 3, 4, 5});
  const Tensor transposed = Tensor::view(a.storage(), {3, 2}, {1, 3}, 0, DType::f32, {});
  EXPECT_FALSE(transposed.is_contiguous());
  EXPECT_EQ(transposed.to_doubles(), (std::vector<double>{0, 3, 1, 4, 2, 5}));
  EXPECT_EQ(transposed.contiguous().as_shape({6}).to_doubles(), transposed.to_doubles());
  EXPECT_THROW(transposed.as_shape({6}), ShapeError);
  EXPECT_THROW(Tensor::view(a.storage(), {7}, {1}, 0, DType::f32, {}), ShapeError);
  EXPECT_THROW(Tensor::view(a.storage(), {2}, {1}, 5, DType::f32, {}), ShapeError);
  EXPECT_THROW(Tensor::view(a.storage(), {2}, {std::int64_t{1} << 62}, 1, DType::f32, {}), ShapeError);
  EXPECT_THROW(Tensor::view(a.storage(), {1}, {1}, -1, DType::f32, {}), ShapeError);
  EXPECT_THROW(Tensor::view(a.storage(), {4}, {1}, 0, DType::f64, {}), ShapeError);
  EXPECT_EQ(Tensor::view(a.storage(), {4}, {0}, 2, DType::f32, {}).to_doubles(), (std::vector<double>{2, 2, 2, 2}));
}

TEST(Tensor, CopiesIntoStridedViews) {
  const Tensor a = Tensor::zeros({2, 3});
  Tensor::view(a.storage(), {2}, {3}, 1, DType::f32, {}).copy_from(Tensor::of<double>({2}, {7.0, 8.0}));
  EXPECT_EQ(a.to_doubles(), (std::vector<double>{0, 7, 0, 0, 8, 0}));
}

TEST(Tensor, CopiesWithinAStorageAsIfFromACopy) {
  const Tensor a = Tensor::of<float>({3, 3}, {1, 2, 3, 4, 5, 6, 7, 8, 9});
  a.copy_from(Tensor::view(a.storage(), {3, 3}, {1, 3}, 0, DType::f32, {}));
  EXPECT_EQ(a.to_doubles(), (std::vector<double>{1, 4, 7, 2, 5, 8, 3, 6, 9})) << "transposed in place";

  const Tensor b = Tensor::of<float>({6}, {1, 2, 3, 4, 5, 6});
  const auto every_other = [&](std::int64_t from) { return Tensor::view(b.storage(), {2}, {2}, from, DType::f32, {}); };
  every_other(2).copy_from(every_other(0));
  EXPECT_EQ(b.to_doubles(), (std::vector<double>{1, 2, 1, 4, 3, 6}));

  const Tensor c = Tensor::of<float>({8}, {1, 2, 3, 4, 5, 6, 7, 8});
  const Tensor wide = Tensor::view(c.storage(), {4}, {1}, 0, DType::f64, {});
  wide.copy_from(Tensor::view(c.storage(), {4}, {1}, 0, DType::f32, {}));
  EXPECT_EQ(wide.to_doubles(), (std::vector<double>{1, 2, 3, 4})) << "converted in place";

  const Tensor d = Tensor::of<float>({4}, {1, 2, 3, 4});
  const auto three = [&](std::int64_t from) { return Tensor::view(d.storage(), {3}, {1}, from, DType::f32, {}); };
  three(1).copy_from(three(0));
  EXPECT_EQ(d.to_doubles(), (std::vector<double>{1, 1, 2, 3}));
}

TEST(Tensor, RefusesMisuse) {
  const Tensor a = Tensor::zeros({2, 3});
  EXPECT_THROW(a.data<double>(), DTypeError);
  EXPECT_THROW(a.item(), UsageError);
  EXPECT_THROW(Tensor().shape(), UsageError);
  EXPECT_THROW(a.copy_from(Tensor::zeros({3, 2})), ShapeError);
  EXPECT_THROW(Tensor::of<float>({3}, {1.0f, 2.0f}), ShapeError);
  EXPECT_THROW(a.as_shape({5}), ShapeError);
  EXPECT_THROW(Tensor::empty({std::int64_t{1} << 50}), OutOfMemory);
  EXPECT_THROW(dtype_named("float"), DTypeError);
  EXPECT_THROW(Device("gpu"), ConfigError);
}

TEST(Convert, SaturatesAndTruncates) {
  EXPECT_EQ(convert_element<std::uint8_t>(300.7), 255);
  EXPECT_EQ(convert_element<std::uint8_t>(-3.0), 0);
  EXPECT_EQ(convert_element<std::int32_t>(std::nan("")), 0);
  EXPECT_EQ(convert_element<std::int64_t>(1e300), std::numeric_limits<std::int64_t>::max());
  EXPECT_EQ(convert_element<std::int32_t>(-2.9f), -2);
  EXPECT_EQ(convert_element<bool>(0.5f), true);
}

TEST(Convert, IntegersSaturate) {
  const Tensor wide = Tensor::of<std::int64_t>({5}, {5000000000, -5000000000, -1, 256, 7});
  EXPECT_EQ(wide.to(DType::i32).to_doubles(), (std::vector<double>{2147483647, -2147483648.0, -1, 256, 7}));
  EXPECT_EQ(wide.to(DType::u8).to_doubles(), (std::vector<double>{255, 0, 0, 255, 7}));
  EXPECT_EQ(wide.to(DType::i32).to(DType::u8).to_doubles(), (std::vector<double>{255, 0, 0, 255, 7}));
  EXPECT_EQ(wide.to(DType::boolean).to_doubles(), std::vector<double>(5, 1));
}

TEST(Convert, RoundsDoublesToHalvesOnce) {
  // Beside a tie, by less than f32 can tell.
  EXPECT_EQ(convert_element<bf16>(1 + 0x1p-8 + 0x1p-40).bits, 0x3f81);
  EXPECT_EQ(convert_element<bf16>(1 + 3 * 0x1p-8 - 0x1p-40).bits, 0x3f81);
  EXPECT_EQ(convert_element<bf16>(-(1 + 0x1p-8 + 0x1p-40)).bits, 0xbf81);
  EXPECT_EQ(convert_element<bf16>(1 + 0x1p-8).bits, 0x3f80) << "a tie goes to even";
  EXPECT_EQ(Tensor::full({}, 1 + 0x1p-8 + 0x1p-40, DType::bf16).item(), 1 + 0x1p-7);
  EXPECT_EQ(Tensor::full({9}, 1 + 0x1p-11 + 0x1p-40, DType::f64).to(DType::f16).to_doubles(),
            std::vector<double>(9, 1 + 0x1p-10));
  // The ends: subnormals, the largest, infinities and none at all.
  EXPECT_EQ(convert_element<f16>(0x1p-25 + 0x1p-70).bits, 1);
  EXPECT_EQ(convert_element<f16>(0x1p-25).bits, 0);
  EXPECT_EQ(convert_element<f16>(65520 - 1e-9).bits, 0x7bff);
  EXPECT_EQ(convert_element<f16>(-65520.0).bits, 0xfc00);
  EXPECT_EQ(convert_element<bf16>(1e300).bits, 0x7f80);
  EXPECT_EQ(convert_element<bf16>(-1e-300).bits, 0x8000);
  EXPECT_TRUE(std::isnan(static_cast<float>(convert_element<f16>(std::nan("")))));
  std::uint64_t state = 12345;
  for (int i = 0; i < 500000; ++i) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    // Half of them within f16's reach, close to ties.
    const double tie = static_cast<double>(2 * (state >> 48) + 1) * 0x1p-20;
    const double value =
        i % 2 == 0 ? std::bit_cast<double>(state) : tie * (1 + static_cast<double>(i % 5 - 2) * 0x1p-45);
    if (std::isnan(value)) continue;
    ASSERT_EQ(convert_element<f16>(value).bits, std::bit_cast<std::uint16_t>(static_cast<_Float16>(value))) << value;
  }
}

// Every 16-bit pattern survives the way to float and back; rounding agrees with the compiler's own half type.
TEST(Half, RoundTripsEveryPattern) {
  for (std::uint32_t bits = 0; bits < 65536; ++bits) {
    const float wide = f16::to_float(static_cast<std::uint16_t>(bits));
    const float wide_bf = static_cast<float>(bf16::from_bits(static_cast<std::uint16_t>(bits)));
    if (!std::isnan(wide)) {
      EXPECT_EQ(f16::from_float(wide), bits);
    }
    if (!std::isnan(wide_bf)) {
      EXPECT_EQ(bf16::from_float(wide_bf), bits);
    }
  }
  EXPECT_TRUE(std::isnan(static_cast<float>(f16(std::nanf("")))));
  EXPECT_TRUE(std::isnan(static_cast<float>(bf16(std::nanf("")))));
}

TEST(Half, RoundsToNearestEven) {
  std::uint32_t state = 12345;
  for (int i = 0; i < 2000000; ++i) {
    state = state * 1664525u + 1013904223u;
    const float value = std::bit_cast<float>(state);
    if (std::isnan(value)) continue;
    const auto reference = std::bit_cast<std::uint16_t>(static_cast<_Float16>(value));
    ASSERT_EQ(f16::from_float(value), reference) << value;
  }
  EXPECT_EQ(bf16::from_float(std::bit_cast<float>(0x3f808000u)), 0x3f80);  // a tie goes to even
  EXPECT_EQ(bf16::from_float(std::bit_cast<float>(0x3f818000u)), 0x3f82);
  EXPECT_EQ(bf16::from_float(std::bit_cast<float>(0x3f808001u)), 0x3f81);
}

}  // namespace
}  // namespace hearth::tensor_test
