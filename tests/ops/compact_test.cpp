// SPDX-License-Identifier: Apache-2.0
// Elements and rows where a mask is true, in order, and what is behind the last.
#include "ops/index/compact.h"

#include <cmath>
#include <limits>

#include "autograd/backward.h"
#include "autograd/grad_state.h"
#include "core/cuda/counters.h"
#include "ops/index/index.h"
#include "ops/pointwise/compare.h"
#include "ops/pointwise/operators.h"
#include "ops/reduce/reduce.h"
#include "ops/shape/view.h"
#include "tests/support/op_test.h"

namespace hearth::test::compact_test {
namespace {

using Values = std::vector<double>;

/// bool: true at about one element of `of`, with whole chunks of both kinds.
Tensor mask_of(Draw& draw, const Shape& shape, std::int64_t of) { return equal(draw.integers(shape, of), 0.0); }

OP_TEST(Compact) {
  for (const std::int64_t n : {1, 31, 37, 257, 4095, 4097, 9000})
    for (const std::int64_t of : {1, 3}) {
      const Shape shape = n < 300 ? Shape{n, 3} : Shape{n};
      check(
          [&](Draw& draw) {
            const Tensor x = draw.normal(shape);
            return compact(x, mask_of(draw, {n}, of)).values;
          },
          [&](Draw& draw) {
            const Tensor x = draw.normal(shape);
            const Values all = x.to_doubles(), is_there = mask_of(draw, {n}, of).to_doubles();
            Values rows;
            const std::size_t width = all.size() / is_there.size();
            for (std::size_t i = 0; i < all.size(); ++i)
              if (is_there[i / width] != 0) rows.push_back(all[i]);
            rows.resize(all.size(), 0);
            return rows;
          });
      check(
          [&](Draw& draw) {
            const Tensor x = draw.normal(shape);
            return compact(x, mask_of(draw, {n}, of)).indices;
          },
          [&](Draw& draw) {
            (void)draw.normal(shape);
            const Values is_there = mask_of(draw, {n}, of).to_doubles();
            Values places;
            for (std::size_t i = 0; i < is_there.size(); ++i)
              if (is_there[i] != 0) places.push_back(static_cast<double>(i));
            places.resize(is_there.size(), 0);
            return places;
          },
          {.no_gradient = true});
    }
  // A capacity that is more than there are elements.
  check([](Draw& draw) { return compact(draw.normal({5, 2, 3}), mask_of(draw, {5}, 2), 8).values; });
}

OP_TEST(MaskedSelect) {
  for (const Shape& shape : {Shape{1}, {3, 5, 7}, {2, 0, 4}, {}})
    check([&](Draw& draw) { return masked_select(draw.normal(shape), mask_of(draw, shape, 2)).values; });
}

OP_TEST(NonZero) {
  for (const Shape& shape : {Shape{41}, {6, 7}, {3, 5, 7}, {2, 1, 3, 4}, {20, 25, 10}, {0, 3}, {4097, 2}})
    check([&](Draw& draw) { return nonzero(draw.integers(shape, 3)).values; },
          [&](Draw& draw) {
            const Values all = draw.integers(shape, 3).to_doubles();
            Values positions;
            for (std::size_t i = 0; i < all.size(); ++i) {
              if (all[i] == 0) continue;
              std::int64_t rest = shape.size(), at = static_cast<std::int64_t>(i);
              for (const std::int64_t extent : shape) {
                rest /= extent;
                positions.push_back(static_cast<double>(at / rest));
                at %= rest;
              }
            }
            positions.resize(all.size() * static_cast<std::size_t>(shape.rank()), 0);
            return positions;
          },
          {.no_gradient = true});
}

class Counted : public testing::TestWithParam<DeviceType> {
 protected:
  void SetUp() override {
    if (device_count(GetParam()) == 0) GTEST_SKIP() << "there is no CUDA device";
  }
  Device device() const { return Device{GetParam()}; }
  Tensor floats(const std::vector<float>& values) const {
    return Tensor::of<float>({static_cast<std::int64_t>(values.size())}, values).to(device());
  }
};

TEST_P(Counted, ListsEndWithTheirCount) {
  const Tensor x = floats({5, 0, -0.0f, NAN, 7, 0}), mask = not_equal(x, 0.0);
  const CountedList positions = nonzero(x, 4);
  EXPECT_EQ(positions.count.to_doubles(), (Values{3}));
  EXPECT_EQ(positions.count.shape(), Shape{});
  EXPECT_EQ(positions.count.device(), device());
  EXPECT_EQ(positions.values.to_doubles(), (Values{0, 3, 4, 0}));
  EXPECT_EQ(positions.wait().to_doubles(), (Values{0, 3, 4}));
  const Compacted rows = compact(floats({1, 2, 3, 4, 5, 6}), mask);
  EXPECT_EQ(rows.wait().to_doubles(), (Values{1, 4, 5}));
  EXPECT_EQ(rows.values.to_doubles(), (Values{1, 4, 5, 0, 0, 0}));
  EXPECT_EQ(index_select(floats({1, 2, 3, 4, 5, 6}), 0, rows.indices).to_doubles(), (Values{1, 4, 5, 1, 1, 1}));
}

// Rows of every width, and masks that begin at an odd byte.
TEST_P(Counted, RowsOfAnyTypeAndPlace) {
  for (const DType dtype : {DType::f64, DType::f32, DType::bf16, DType::i64, DType::u8, DType::boolean})
    for (const std::int64_t inner : {1, 3, 16}) {
      const Tensor x = slice(Tensor::full({10, inner}, 1, dtype, device()), 0, 1, 10);
      const Tensor mask = slice(Tensor::full({10}, 1, DType::boolean, device()), 0, 1, 10);
      const Compacted all = compact(x, mask, 12);
      EXPECT_EQ(all.count.item(), 9);
      EXPECT_EQ(all.values.dtype(), dtype);
      Values expected(static_cast<std::size_t>(9 * inner), 1);
      EXPECT_EQ(all.wait().to_doubles(), expected) << dtype << " " << inner;
      expected.resize(static_cast<std::size_t>(12 * inner), 0);
      EXPECT_EQ(all.values.to_doubles(), expected) << dtype << " " << inner;
    }
}

TEST_P(Counted, NothingIsThereToFind) {
  const CountedList none = nonzero(Tensor::zeros({3, 4}, DType::f32, device()));
  EXPECT_EQ(none.wait().shape(), (Shape{0, 2}));
  const Compacted empty =
      compact(Tensor::zeros({0, 2}, DType::f32, device()), Tensor::zeros({0}, DType::boolean, device()), 3);
  EXPECT_EQ(empty.values.to_doubles(), Values(6, 0));
  EXPECT_EQ(empty.indices.to_doubles(), Values(3, 0));
  EXPECT_EQ(empty.count.item(), 0);
  EXPECT_EQ(unique(Tensor::zeros({0}, DType::i64, device())).wait().size(), 0);
  EXPECT_EQ(nonzero(Tensor::zeros({5}, DType::f32, device()), 0).wait().size(), 0);
}

TEST_P(Counted, MoreThanTheCapacityIsRefused) {
  try {
    const CountedList list = nonzero(floats({1, 2, 0, 3}), 2);
    (void)list.wait();
    ADD_FAILURE() << "3 elements in a list for 2";
  } catch (const IndexError& error) {
    EXPECT_NE(std::string(error.what()).find("3 elements"), std::string::npos) << error.what();
    EXPECT_NE(std::string(error.what()).find("for 2"), std::string::npos) << error.what();
  }
  EXPECT_EQ(nonzero(floats({1, 2, 0, 3}), 3).wait().size(), 3);
}

TEST_P(Counted, UniqueElementsAscend) {
  EXPECT_EQ(unique(floats({3, 1, 3, -2, 1, 1})).wait().to_doubles(), (Values{-2, 1, 3}));
  EXPECT_EQ(unique(floats({4})).wait().to_doubles(), (Values{4}));
  const Tensor labels = Tensor::of<std::int64_t>({2, 3}, {7, 7, 0, 2, 0, 7}).to(device());
  const CountedList list = unique(labels, 4);
  EXPECT_EQ(list.values.to_doubles(), (Values{0, 2, 7, 0}));
  EXPECT_EQ(list.values.dtype(), DType::i64);
  EXPECT_EQ(unique(floats({NAN, 1, NAN})).wait().size(), 3);
}

TEST_P(Counted, GradientsGoToTheRowsThatWereTaken) {
  const Tensor x = requires_grad(floats({1, 2, 3, 4})), mask = not_equal(floats({0, 1, 0, 1}), 0.0);
  const Compacted rows = compact(x, mask);
  backward(sum(rows.values * floats({10, 20, 30, 40})));
  EXPECT_EQ(grad_of(x).to_doubles(), (Values{0, 10, 0, 20}));
}

INSTANTIATE_TEST_SUITE_P(Devices, Counted, testing::Values(DeviceType::cpu, DeviceType::cuda),
                         [](const auto& tried) { return tried.param == DeviceType::cpu ? "cpu" : "cuda"; });

TEST(CudaCompact, IsTwoLaunchesWithoutAWait) {
  if (device_count(DeviceType::cuda) == 0) GTEST_SKIP() << "there is no CUDA device";
  const Device gpu{DeviceType::cuda, 0};
  for (const std::int64_t n : {7, 100000}) {
    const Tensor mask = Tensor::full({n}, 1, DType::boolean, gpu), x = Tensor::zeros({n, 2}, DType::f32, gpu);
    const cuda::Counters before = cuda::counters();
    (void)nonzero(mask);
    (void)compact(x, mask);
    const cuda::Counters done = cuda::counters() - before;
    EXPECT_EQ(done.launches, 4);
    EXPECT_EQ(done.waits, 0);
  }
}

TEST(CompactRefusal, Arguments) {
  const Tensor x = Tensor::zeros({2, 3}), mask = Tensor::zeros({2}, DType::boolean);
  refuses<UsageError>("compact", [&] { return compact(Tensor(), mask).values; });
  refuses<UsageError>("compact", [&] { return compact(x, Tensor()).values; });
  refuses<DTypeError>("compact", [&] { return compact(x, Tensor::zeros({2})).values; });
  refuses<ShapeError>("compact", [&] { return compact(x, Tensor::zeros({3}, DType::boolean)).values; });
  refuses<ShapeError>("compact", [&] { return compact(Tensor::zeros({}), mask).values; });
  refuses<UsageError>("compact", [&] { return compact(x, mask, -1).values; });
  refuses<IndexError>("compact", [&] { return compact(x, Tensor::full({2}, 1, DType::boolean), 1).values; });
  refuses<UsageError>("masked_select", [&] { return masked_select(Tensor(), mask).values; });
  refuses<UsageError>("masked_select", [&] { return masked_select(x, Tensor()).values; });
  refuses<ShapeError>("masked_select", [&] { return masked_select(x, mask).values; });
  refuses<DTypeError>("masked_select", [&] { return masked_select(x, x).values; });
  refuses<UsageError>("masked_select", [&] { return masked_select(mask, mask, -3).values; });
  refuses<UsageError>("nonzero", [] { return nonzero(Tensor()).values; });
  refuses<ShapeError>("nonzero", [] { return nonzero(Tensor::zeros({})).values; });
  refuses<UsageError>("nonzero", [&] { return nonzero(x, -1).values; });
  refuses<UsageError>("nonzero", [&] { return nonzero(x, std::numeric_limits<std::int64_t>::min()).values; });
  refuses<IndexError>("nonzero", [] { return nonzero(Tensor::full({3}, 2.0), 2).values; });
  refuses<UsageError>("unique", [] { return unique(Tensor()).values; });
  refuses<UsageError>("unique", [&] { return unique(x, -1).values; });
  refuses<IndexError>("unique", [] { return unique(Tensor::of<float>({2}, {1, 2}), 1).values; });
}

}  // namespace
}  // namespace hearth::test::compact_test
