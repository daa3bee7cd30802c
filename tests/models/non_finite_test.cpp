// SPDX-License-Identifier: Apache-2.0
#include "models/weights/non_finite.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "core/tensor.h"

namespace hearth::non_finite_test {
namespace {

TEST(NonFinite, IsCountedInEveryFloatingType) {
  const double nan = std::nan(""), infinity = std::numeric_limits<double>::infinity();
  const Tensor values = Tensor::of<double>({7}, {0.0, nan, -infinity, 1.5, infinity, -nan, infinity});
  for (const DType dtype : {DType::f64, DType::f32, DType::f16, DType::bf16}) {
    const Tensor tensor = values.to(dtype);
    const NonFinite found = count_non_finite(dtype, {tensor.bytes(), tensor.byte_size()});
    EXPECT_EQ(found.nan, 2) << dtype;
    EXPECT_EQ(found.infinite, 3) << dtype;
    EXPECT_TRUE(found.any());
    EXPECT_EQ(found.text(), "2 NaN, 3 infinite");
    // The bytes of a file may begin anywhere.
    std::vector<std::byte> shifted(tensor.byte_size() + 1);
    std::copy(tensor.bytes(), tensor.bytes() + tensor.byte_size(), shifted.begin() + 1);
    EXPECT_EQ(count_non_finite(dtype, std::span<const std::byte>(shifted).subspan(1)).text(), found.text());
  }
}

TEST(NonFinite, TheLargestAndSmallestNumbersAreFinite) {
  const Tensor values = Tensor::of<float>({4}, {std::numeric_limits<float>::max(), std::numeric_limits<float>::lowest(),
                                                std::numeric_limits<float>::denorm_min(), -0.0F});
  const NonFinite found = count_non_finite(DType::f32, {values.bytes(), values.byte_size()});
  EXPECT_FALSE(found.any());
  EXPECT_EQ(found.text(), "");
  const std::vector<std::byte> ones(16, std::byte{0xff});
  for (const DType dtype : {DType::i32, DType::i64, DType::u8, DType::boolean})
    EXPECT_FALSE(count_non_finite(dtype, ones).any()) << dtype;
}

}  // namespace
}  // namespace hearth::non_finite_test
