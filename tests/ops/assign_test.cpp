// SPDX-License-Identifier: Apache-2.0
// Which box a point is to predict: FCOS's rule beside a plain loop, and boxes that are ignored.
#include "ops/boxes/assign.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "tests/support/op_test.h"

namespace hearth::test::assign_test {
namespace {

using Values = std::vector<double>;
constexpr double endless = std::numeric_limits<double>::infinity();

class AssignPoints : public testing::TestWithParam<DeviceType> {
 protected:
  void SetUp() override {
    if (device_count(GetParam()) == 0) GTEST_SKIP() << "there is no CUDA device";
  }
  Tensor floats(const Shape& shape, const Values& values, DType dtype = DType::f32) const {
    return Tensor::of(shape, values).to(dtype).to(Device{GetParam()});
  }
  Tensor integers(const std::vector<std::int64_t>& values) const {
    return Tensor::of<std::int64_t>({static_cast<std::int64_t>(values.size())}, values).to(Device{GetParam()});
  }
};

TEST_P(AssignPoints, TheSmallestBoxThatQualifiesIsChosen) {
  // Points at (4, 4), (12, 4), (40, 40); anchors of 8 pixels. The second image has one box.
  const Values anchors{0, 0, 8, 8, 8, 0, 16, 8, 36, 36, 44, 44}, reach{0, 32, 0, 32, 0, endless};
  const Values boxes{0, 0, 20, 10, 2, 2, 9, 9, 2, 2, 9, 9, 0, 0, 80, 80, /* of the second */ 1, 1, 9, 7};
  for (const DType dtype : {DType::f32, DType::f64}) {
    const Tensor y = assign_points(floats({3, 4}, anchors, dtype), floats({3, 2}, reach, dtype),
                                   {floats({5, 4}, boxes, dtype), integers({4, 1})});
    EXPECT_EQ(y.shape(), (Shape{2, 3}));
    // (4, 4): two equal small boxes, the first counts. (12, 4): inside the wide one, near its centre. (40, 40): the
    // centre of the largest.
    EXPECT_EQ(y.to_doubles(), (Values{1, 0, 3, 4, -1, -1}));
  }
}

TEST_P(AssignPoints, RadiusAndReachAreBounds) {
  const auto of = [&](double radius, double least, double most) {
    return assign_points(floats({1, 4}, {0, 0, 8, 8}), floats({1, 2}, {least, most}),
                         {floats({1, 4}, {1, 1, 31, 9}), integers({1})}, radius)
        .to_doubles()[0];
  };
  // The centre is at (16, 5), 12 pixels from (4, 4); the farthest side 27 pixels.
  EXPECT_EQ(of(1.5, 0, 100), -1);
  EXPECT_EQ(of(1.501, 0, 100), 0);
  EXPECT_EQ(of(4, 27, 100), -1);
  EXPECT_EQ(of(4, 26.9, 100), 0);
  EXPECT_EQ(of(4, 0, 27), -1);
  EXPECT_EQ(of(4, 0, 27.1), 0);
}

TEST_P(AssignPoints, PointsOfIgnoredBoxesAloneAreIgnored) {
  const Tensor anchors = floats({3, 4}, {0, 0, 8, 8, 20, 20, 28, 28, 60, 60, 68, 68});
  const Tensor reach = floats({3, 2}, {0, endless, 0, endless, 0, endless});
  const Tensor ignored = Tensor::of<std::int64_t>({2}, std::vector<std::int64_t>{1, 0}).to(DType::boolean);
  const Tensor y = assign_points(
      anchors, reach, {floats({2, 4}, {0, 0, 50, 50, 1, 1, 9, 9}), integers({2}), ignored.to(Device{GetParam()})});
  EXPECT_EQ(y.to_doubles(), (Values{1, -2, -1}));
}

TEST_P(AssignPoints, FollowsThePlainLoop) {
  constexpr std::int64_t points = 300, images = 5;
  Values anchors, reach, boxes;
  std::vector<std::int64_t> counts;
  for (std::int64_t p = 0; p < points; ++p) {
    const double x = static_cast<double>(p % 20) * 8, y = static_cast<double>(p / 20) * 8, half = p < 150 ? 4 : 16;
    anchors.insert(anchors.end(), {x - half, y - half, x + half, y + half});
    reach.insert(reach.end(), {p < 150 ? 0.0 : 32.0, p < 150 ? 32.0 : endless});
  }
  for (std::int64_t image = 0; image < images; ++image) {
    counts.push_back(image * 7 % 11);
    for (std::int64_t i = 0; i < counts.back(); ++i) {
      const auto number = [&](std::int64_t a, std::int64_t m) {
        return static_cast<double>((a * (i + 13 * image) + 5) % m);
      };
      const double x = number(37, 97), y = number(53, 89);
      boxes.insert(boxes.end(), {x, y, x + 3 + number(29, 71), y + 5 + number(17, 67)});
    }
  }
  const auto all = static_cast<std::int64_t>(boxes.size() / 4);
  const Values y = assign_points(floats({points, 4}, anchors), floats({points, 2}, reach),
                                 {floats({all, 4}, boxes), integers(counts)})
                       .to_doubles();
  std::int64_t begin = 0, objects = 0;
  for (std::int64_t image = 0; image < images; ++image) {
    const std::int64_t end = begin + counts[static_cast<std::size_t>(image)];
    for (std::int64_t p = 0; p < points; ++p) {
      const double* const a = &anchors[static_cast<std::size_t>(4 * p)];
      const double px = (a[0] + a[2]) / 2, py = (a[1] + a[3]) / 2, near = 1.5 * (a[2] - a[0]);
      double wanted = -1, least = endless;
      for (std::int64_t i = begin; i < end; ++i) {
        const double* const b = &boxes[static_cast<std::size_t>(4 * i)];
        const std::initializer_list<double> sides = {px - b[0], py - b[1], b[2] - px, b[3] - py};
        const double area = (b[2] - b[0]) * (b[3] - b[1]);
        const bool fits = std::min(sides) > 0 && std::max(sides) > reach[static_cast<std::size_t>(2 * p)] &&
                          std::max(sides) < reach[static_cast<std::size_t>(2 * p + 1)] &&
                          std::max(std::abs(px - (b[0] + b[2]) / 2), std::abs(py - (b[1] + b[3]) / 2)) < near;
        if (fits && area < least) wanted = static_cast<double>(i), least = area;
      }
      ASSERT_EQ(y[static_cast<std::size_t>(image * points + p)], wanted) << "image " << image << ", point " << p;
      objects += wanted >= 0 ? 1 : 0;
    }
    begin = end;
  }
  EXPECT_GT(objects, 20);
}

TEST_P(AssignPoints, NoBoxesSpareOnesAndWrongCounts) {
  const Tensor anchors = floats({1, 4}, {0, 0, 8, 8}), reach = floats({1, 2}, {0, 9});
  EXPECT_EQ(assign_points(anchors, reach, {floats({0, 4}, {}), integers({0, 0})}).to_doubles(), (Values{-1, -1}));
  const auto wrong = [&](const std::vector<std::int64_t>& counts) {
    return assign_points(anchors, reach, {floats({2, 4}, {0, 0, 8, 8, 0, 0, 8, 8}), integers(counts)}).to_doubles();
  };
  EXPECT_EQ(wrong({1}), (Values{0})) << "the second is spare";
  EXPECT_EQ(wrong({0, 1}), (Values{-1, 0}));
  EXPECT_THROW(wrong({1, 2}), IndexError);
  EXPECT_THROW(wrong({3, -1}), IndexError);
}

INSTANTIATE_TEST_SUITE_P(Devices, AssignPoints, testing::Values(DeviceType::cpu, DeviceType::cuda),
                         [](const auto& tried) { return tried.param == DeviceType::cpu ? "cpu" : "cuda"; });

TEST(AssignPointsRefusal, Arguments) {
  const Tensor anchors = Tensor::zeros({2, 4}), reach = Tensor::zeros({2, 2}), counts = Tensor::zeros({1}, DType::i64);
  const BoxList none{Tensor::zeros({0, 4}), counts};
  refuses<UsageError>("assign_points", [&] { return assign_points(Tensor(), reach, none); });
  refuses<ShapeError>("assign_points", [&] { return assign_points(anchors, Tensor::zeros({2, 4}), none); });
  refuses<ShapeError>("assign_points", [&] { return assign_points(anchors, reach, {Tensor::zeros({4}), counts}); });
  refuses<DTypeError>("assign_points", [&] { return assign_points(anchors.to(DType::f64), reach, none); });
  refuses<DTypeError>("assign_points", [&] {
    return assign_points(anchors.to(DType::f16), reach.to(DType::f16), {Tensor::zeros({0, 4}, DType::f16), counts});
  });
  refuses<DTypeError>("assign_points", [&] {
    return assign_points(anchors, reach, {Tensor::zeros({0, 4}), Tensor::zeros({1})});
  });
  refuses<UsageError>("assign_points", [&] { return assign_points(anchors, reach, none, 0); });
  refuses<ShapeError>("assign_points", [&] {
    return assign_points(anchors, reach, {Tensor::zeros({0, 4}), counts, Tensor::zeros({3}, DType::boolean)});
  });
}

}  // namespace
}  // namespace hearth::test::assign_test
