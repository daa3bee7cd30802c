// SPDX-License-Identifier: Apache-2.0
#include "ops/index/segment_positions.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <limits>
#include <vector>

#include "core/device.h"
#include "ops/ops.h"

namespace hearth::segment_positions_test {
namespace {

class SegmentPositions : public testing::TestWithParam<DeviceType> {
 protected:
  void SetUp() override {
    if (device_count(GetParam()) == 0) GTEST_SKIP() << "no CUDA device here";
  }
  std::vector<double> positions(const Tensor& segments) const {
    const Device device{GetParam()};
    const Tensor found = segment_positions(segments.to(device));
    EXPECT_EQ(found.dtype(), DType::i32);
    EXPECT_EQ(found.device(), device);
    EXPECT_EQ(found.shape(), (Shape{segments.dim(0), segments.dim(1)}));
    return found.to(Device{}).to(DType::f64).to_doubles();
  }
};

TEST_P(SegmentPositions, BeginAnewInEachSegment) {
  const Tensor segments = Tensor::of<std::int32_t>({2, 4, 2}, {0, 1, 1, 4, 1, 4, 1, 4, 0, 2, 0, 2, 2, 4, 2, 4});
  EXPECT_EQ(positions(segments), (std::vector<double>{0, 0, 1, 2, 0, 1, 0, 1}));
  const Tensor swapped = Tensor::of<std::int32_t>({2, 2, 2}, {0, 2, 0, 1, 0, 2, 1, 2});
  EXPECT_EQ(positions(transpose(swapped, {1, 0, 2})), (std::vector<double>{0, 1, 0, 0})) << "a strided view";
  EXPECT_TRUE(positions(Tensor::zeros({3, 0, 2}, DType::i32)).empty());
  EXPECT_TRUE(positions(Tensor::zeros({0, 3, 2}, DType::i32)).empty());
  EXPECT_EQ(positions(Tensor::zeros({333, 1, 2}, DType::i32)), std::vector<double>(333, 0));
}

TEST_P(SegmentPositions, LieWithinTheRow) {
  constexpr std::int32_t most = std::numeric_limits<std::int32_t>::max();
  const Tensor segments = Tensor::of<std::int32_t>({1, 3, 2}, {-5, 0, most, 0, -most - 1, 0});
  EXPECT_EQ(positions(segments), (std::vector<double>{0, 0, 2}));
}

TEST_P(SegmentPositions, RefuseWhatIsNotSegments) {
  EXPECT_THROW(segment_positions(Tensor{}), ShapeError);
  EXPECT_THROW(segment_positions(Tensor::zeros({2, 3}, DType::i32)), ShapeError);
  EXPECT_THROW(segment_positions(Tensor::zeros({2, 3, 3}, DType::i32)), ShapeError);
  EXPECT_THROW(segment_positions(Tensor::zeros({2, 3, 2}, DType::i64)), DTypeError);
  EXPECT_THROW(segment_positions(Tensor::zeros({2, 3, 2})), DTypeError);
}

INSTANTIATE_TEST_SUITE_P(Devices, SegmentPositions, testing::Values(DeviceType::cpu, DeviceType::cuda),
                         [](const auto& tried) { return tried.param == DeviceType::cpu ? "cpu" : "cuda"; });

}  // namespace
}  // namespace hearth::segment_positions_test
