// SPDX-License-Identifier: Apache-2.0
#include "ops/reduce/cumsum.h"

#include <limits>

#include "autograd/grad_mode.h"
#include "tests/support/op_test.h"

namespace hearth::test::cumsum_test {
namespace {

using Values = std::vector<double>;

OP_TEST(CumSum) {
  for (const Shape& shape : {Shape{1}, {37}, {4, 5, 7}, {3, 1}, {3, 600}, {0, 3}, {2, 0}}) {
    for (int axis = 0; axis < shape.rank(); ++axis) check([&](Draw& draw) { return cumsum(draw.normal(shape), axis); });
  }
  check(
      [](Draw& draw) {
        return cumsum(draw.normal({3, 67}), -1);
      },
      [](Draw& draw) {
        Values values = draw.normal({3, 67}).to_doubles();
        for (std::size_t i = 0; i < values.size(); ++i)
          if (i % 67 != 0) values[i] += values[i - 1];
        return values;
      });
}

// What torch.cumsum gives: integers of all types become i64.
OP_TEST(CumSumOfIntegers) {
  const Device device = current_site().device;
  const std::int64_t big = std::int64_t{1} << 60;
  const Tensor x = Tensor::of<std::int64_t>({4}, std::vector<std::int64_t>{big, 1, -big, 5}).to(device);
  const Tensor y = cumsum(x, 0).to(Device{});
  EXPECT_EQ(y.dtype(), DType::i64);
  const std::int64_t* const sums = y.data<const std::int64_t>();
  EXPECT_EQ(std::vector<std::int64_t>(sums, sums + 4), (std::vector<std::int64_t>{big, big + 1, 1, 6}));
  const Tensor mask = Tensor::of<std::int32_t>({2, 3}, std::vector<std::int32_t>{1, 0, 1, 1, 1, 1}).to(device);
  for (const DType dtype : {DType::i32, DType::u8, DType::boolean}) {
    EXPECT_EQ(cumsum(mask.to(dtype), 0).to_doubles(), (Values{1, 0, 1, 2, 1, 2}));
    EXPECT_EQ(cumsum(mask.to(dtype), 1).dtype(), DType::i64);
  }
}

TEST(CumSum, IsComputedInF32UnderAutocast) {
  const AutocastScope scope(DType::f16);
  EXPECT_EQ(cumsum(Tensor::full({4}, 6e4, DType::f16), 0).dtype(), DType::f32);
}

TEST(CumSumRefusal, Arguments) {
  const Tensor x = Tensor::zeros({2, 3});
  refuses<UsageError>("cumsum", [] { return cumsum(Tensor(), 0); });
  refuses<ShapeError>("cumsum", [&] { return cumsum(x, 2); });
  refuses<ShapeError>("cumsum", [&] { return cumsum(x, -3); });
  refuses<ShapeError>("cumsum", [&] { return cumsum(x, std::numeric_limits<int>::min()); });
  refuses<ShapeError>("cumsum", [] { return cumsum(Tensor::zeros({}), 0); });
}

}  // namespace
}  // namespace hearth::test::cumsum_test
