// SPDX-License-Identifier: Apache-2.0
#include "ops/index/row_lengths.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <vector>

#include "core/device.h"
#include "ops/ops.h"

namespace hearth::row_lengths_test {
namespace {

class RowLengths : public testing::TestWithParam<DeviceType> {
 protected:
  void SetUp() override {
    if (device_count(GetParam()) == 0) GTEST_SKIP() << "no CUDA device here";
  }
  Device device() const { return Device{GetParam()}; }
  std::vector<double> lengths(const Tensor& ids, std::int64_t pad) const {
    const Tensor found = row_lengths(ids.to(device()), pad);
    EXPECT_EQ(found.dtype(), DType::i32);
    EXPECT_EQ(found.device(), device());
    return found.to(Device{}).to(DType::f64).to_doubles();
  }
};

TEST_P(RowLengths, EndAtTheLastIdThatIsNoPadding) {
  const Tensor ids = Tensor::of<std::int32_t>({4, 3}, {5, 0, 0, 5, 0, 7, 0, 0, 0, 1, 2, 3});
  EXPECT_EQ(lengths(ids, 0), (std::vector<double>{1, 3, 0, 3}));
  EXPECT_EQ(lengths(ids, 7), (std::vector<double>{3, 2, 3, 3}));
  EXPECT_EQ(lengths(ids.to(DType::i64), 0), (std::vector<double>{1, 3, 0, 3}));
}

TEST_P(RowLengths, TakeAnyNumberAndLengthOfRows) {
  EXPECT_EQ(lengths(Tensor::zeros({3, 0}, DType::i32), 0), (std::vector<double>{0, 0, 0}));
  EXPECT_TRUE(lengths(Tensor::zeros({0, 3}, DType::i32), 0).empty());
  EXPECT_EQ(lengths(Tensor::zeros({333, 5}, DType::i32), 1), std::vector<double>(333, 5));
  const Tensor ids = Tensor::of<std::int32_t>({2, 2}, {1, 9, 9, 9});
  EXPECT_EQ(lengths(transpose(ids, {1, 0}), 9), (std::vector<double>{1, 0})) << "a strided view";
}

TEST_P(RowLengths, RefuseWhatIsNotRowsOfIds) {
  EXPECT_THROW(row_lengths(Tensor::zeros({3}, DType::i32), 0), ShapeError);
  EXPECT_THROW(row_lengths(Tensor::zeros({}, DType::i64), 0), ShapeError);
  EXPECT_THROW(row_lengths(Tensor::zeros({1, 2, 3}, DType::i64), 0), ShapeError);
  EXPECT_THROW(row_lengths(Tensor::zeros({2, 3}), 0), DTypeError);
  EXPECT_THROW(row_lengths(Tensor::zeros({2, 3}, DType::u8), 0), DTypeError);
  EXPECT_THROW(row_lengths(Tensor{}, 0), ShapeError);
}

INSTANTIATE_TEST_SUITE_P(Devices, RowLengths, testing::Values(DeviceType::cpu, DeviceType::cuda),
                         [](const auto& tried) { return tried.param == DeviceType::cpu ? "cpu" : "cuda"; });

}  // namespace
}  // namespace hearth::row_lengths_test
