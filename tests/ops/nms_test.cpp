// SPDX-License-Identifier: Apache-2.0
// Non-maximum suppression: torchvision's indices in its order, and a plain loop.
#include "ops/boxes/nms.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "core/cuda/counters.h"
#include "tests/ops/boxes_golden.h"
#include "tests/support/op_test.h"

namespace hearth::test::nms_test {
namespace {

using namespace boxes_golden;
using Values = std::vector<double>;

/// As make_boxes.py makes them.
struct Many {
  Tensor boxes, scores, classes;

  Many(std::int64_t n, Device device, DType dtype = DType::f32) {
    std::vector<float> corners, score;
    std::vector<std::int64_t> kind;
    for (std::int64_t i = 0; i < n; ++i) {
      const auto number = [i](std::int64_t a, std::int64_t b, std::int64_t m) {
        return static_cast<float>((a * i + b) % m);
      };
      const float x = number(37, 11, 313), y = number(53, 5, 277);
      const float w = number(29, 3, 211) + 40, h = number(17, 9, 173) + 40;
      for (const float corner : {x, y, x + w, y + h}) corners.push_back(corner / 7.0f);
      score.push_back(number(7919, 1, 10007) / 16384);
      kind.push_back(i * 31 / 7 % 5);
    }
    boxes = Tensor::of<float>({n, 4}, corners).to(dtype).to(device);
    scores = Tensor::of<float>({n}, score).to(dtype).to(device);
    classes = Tensor::of<std::int64_t>({n}, kind).to(device);
  }
};

/// What stays, by the definition.
Values stays(const Values& boxes, const Values& scores, const Values& classes, double threshold) {
  std::vector<std::size_t> order(scores.size()), kept;
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) { return scores[a] > scores[b]; });
  const auto area = [&](std::size_t i) {
    return (boxes[4 * i + 2] - boxes[4 * i]) * (boxes[4 * i + 3] - boxes[4 * i + 1]);
  };
  for (const std::size_t i : order) {
    const auto suppresses = [&](std::size_t k) {
      double shared = 1;
      for (std::size_t axis = 0; axis < 2; ++axis)
        shared *= std::max(0.0, std::min(boxes[4 * i + 2 + axis], boxes[4 * k + 2 + axis]) -
                                    std::max(boxes[4 * i + axis], boxes[4 * k + axis]));
      return classes[i] == classes[k] && shared / (area(i) + area(k) - shared) > threshold;
    };
    if (std::none_of(kept.begin(), kept.end(), suppresses)) kept.push_back(i);
  }
  return Values(kept.begin(), kept.end());
}

class Nms : public testing::TestWithParam<DeviceType> {
 protected:
  void SetUp() override {
    if (device_count(GetParam()) == 0) GTEST_SKIP() << "there is no CUDA device";
  }
  Device device() const { return Device{GetParam()}; }
};

TEST_P(Nms, KeepsWhatTorchvisionKeepsInItsOrder) {
  const Json& cases = golden("nms");
  ASSERT_GE(cases.size(), 8u);
  for (std::size_t i = 0; i < cases.size(); ++i) {
    const Json& wanted = cases.at(i);
    const std::int64_t n = wanted.at("n").as_integer();
    const double threshold = wanted.at("threshold").as_number();
    SCOPED_TRACE(std::to_string(n) + " boxes, threshold " + std::to_string(threshold));
    const Many many(n, device());
    const CountedList kept = nms(many.boxes, many.scores, threshold);
    EXPECT_EQ(kept.wait().to_doubles(), numbers_of(wanted.at("kept")));
    EXPECT_EQ(kept.values.shape(), (Shape{n}));
    EXPECT_EQ(kept.values.dtype(), DType::i64);
    Values all = kept.values.to_doubles();
    all.erase(all.begin(), all.begin() + static_cast<std::ptrdiff_t>(wanted.at("kept").size()));
    EXPECT_EQ(all, Values(all.size(), 0)) << "zeros behind the last";
    EXPECT_EQ(batched_nms(many.boxes, many.scores, many.classes, threshold).wait().to_doubles(),
              numbers_of(wanted.at("kept_by_class")));
  }
}

TEST_P(Nms, FollowsThePlainLoopForEveryType) {
  for (const DType dtype : {DType::f64, DType::f32, DType::bf16})
    for (const std::int64_t n : {3, 64, 130}) {
      const Many many(n, device(), dtype);
      const Values boxes = many.boxes.to_doubles(), scores = many.scores.to_doubles();
      EXPECT_EQ(nms(many.boxes, many.scores, 0.31).wait().to_doubles(),
                stays(boxes, scores, Values(scores.size()), 0.31))
          << dtype << " " << n;
      EXPECT_EQ(batched_nms(many.boxes, many.scores, many.classes.to(DType::i32), 0.31).wait().to_doubles(),
                stays(boxes, scores, many.classes.to_doubles(), 0.31))
          << dtype << " " << n;
    }
}

TEST_P(Nms, EqualScoresKeepTheirOrderAndNanComesFirst) {
  const Tensor boxes = Tensor::of<float>({4, 4}, {0, 0, 4, 4, 0, 0, 4, 4, 9, 9, 12, 12, 9, 9, 12, 13}).to(device());
  const Tensor equal = Tensor::full({4}, 0.5f, DType::f32, device());
  EXPECT_EQ(nms(boxes, equal, 0.5).wait().to_doubles(), (Values{0, 2}));
  const Tensor odd = Tensor::of<float>({4}, {0.5f, 0.75f, -INFINITY, NAN}).to(device());
  EXPECT_EQ(nms(boxes, odd, 0.5).wait().to_doubles(), (Values{3, 1}));
}

// An overlap that is the threshold stays, whatever the threshold rounds to.
TEST_P(Nms, SuppressesAboveTheThresholdOnly) {
  const Tensor boxes = Tensor::of<float>({2, 4}, {0, 0, 10, 1, 0, 0, 7, 1}).to(device());
  const Tensor scores = Tensor::of<float>({2}, {1, 0.5f}).to(device());
  const double overlap = static_cast<double>(7.0f / 10.0f);
  EXPECT_EQ(nms(boxes, scores, overlap).wait().size(), 2);
  EXPECT_EQ(nms(boxes, scores, std::nextafter(overlap, 0.0)).wait().size(), 1);
  EXPECT_EQ(nms(boxes, scores, std::nextafter(overlap, 1.0)).wait().size(), 2);
  EXPECT_EQ(nms(boxes, scores, 1.0).wait().size(), 2);
}

TEST_P(Nms, TakesABatchOfImages) {
  const Many a(70, device());
  const Many all(140, device());
  const Tensor boxes = all.boxes.as_shape({2, 70, 4}), scores = all.scores.as_shape({2, 70});
  const CountedList kept = batched_nms(boxes, scores, all.classes.as_shape({2, 70}), 0.4);
  EXPECT_EQ(kept.values.shape(), (Shape{2, 70}));
  EXPECT_EQ(kept.count.shape(), (Shape{2}));
  EXPECT_EQ(kept.wait(0).to_doubles(), batched_nms(a.boxes, a.scores, a.classes, 0.4).wait().to_doubles());
  EXPECT_GT(kept.wait(1).size(), 0);
  EXPECT_THROW(kept.wait(2), IndexError);
  EXPECT_THROW(kept.wait(-1), IndexError);
  EXPECT_THROW(CountedList{}.wait(), UsageError);
}

TEST_P(Nms, TakesNoBoxes) {
  const CountedList none =
      nms(Tensor::zeros({0, 4}, DType::f32, device()), Tensor::zeros({0}, DType::f32, device()), 0.5);
  EXPECT_EQ(none.wait().size(), 0);
  const CountedList images =
      nms(Tensor::zeros({3, 0, 4}, DType::f32, device()), Tensor::zeros({3, 0}, DType::f32, device()), 0.5);
  EXPECT_EQ(images.count.to_doubles(), (Values{0, 0, 0}));
}

INSTANTIATE_TEST_SUITE_P(Devices, Nms, testing::Values(DeviceType::cpu, DeviceType::cuda),
                         [](const auto& tried) { return tried.param == DeviceType::cpu ? "cpu" : "cuda"; });

TEST(CudaNms, IsOneLaunchWithoutAWait) {
  if (device_count(DeviceType::cuda) == 0) GTEST_SKIP() << "there is no CUDA device";
  const Many many(4096, Device{DeviceType::cuda, 0});
  const Tensor boxes = many.boxes.as_shape({4, 1024, 4}), scores = many.scores.as_shape({4, 1024});
  const cuda::Counters before = cuda::counters();
  (void)nms(many.boxes, many.scores, 0.5);
  (void)nms(boxes, scores, 0.5);
  const cuda::Counters done = cuda::counters() - before;
  EXPECT_EQ(done.launches, 2);
  EXPECT_EQ(done.waits, 0);
}

TEST(NmsRefusal, Arguments) {
  const Tensor boxes = Tensor::zeros({3, 4}), scores = Tensor::zeros({3}), classes = Tensor::zeros({3}, DType::i64);
  refuses<UsageError>("nms", [&] { return nms(Tensor(), scores, 0.5).count; });
  refuses<UsageError>("nms", [&] { return nms(boxes, Tensor(), 0.5).count; });
  refuses<ShapeError>("nms", [&] { return nms(boxes, Tensor::zeros({4}), 0.5).count; });
  refuses<ShapeError>("nms", [&] { return nms(Tensor::zeros({3, 5}), scores, 0.5).count; });
  refuses<ShapeError>("nms", [&] { return nms(boxes, Tensor::zeros({}), 0.5).count; });
  refuses<ShapeError>("nms", [&] { return nms(Tensor::zeros({2, 3, 4}), Tensor::zeros({3, 2}), 0.5).count; });
  refuses<DTypeError>("nms", [&] { return nms(boxes, classes, 0.5).count; });
  refuses<DTypeError>("nms", [&] { return nms(boxes, scores.to(DType::f64), 0.5).count; });
  refuses<UsageError>("nms", [&] { return nms(boxes, scores, 1.5).count; });
  refuses<UsageError>("nms", [&] { return nms(boxes, scores, std::nan("")).count; });
  refuses<UsageError>("batched_nms", [&] { return batched_nms(boxes, scores, Tensor(), 0.5).count; });
  refuses<DTypeError>("batched_nms", [&] { return batched_nms(boxes, scores, scores, 0.5).count; });
  refuses<ShapeError>("batched_nms",
                      [&] { return batched_nms(boxes, scores, Tensor::zeros({4}, DType::i64), 0.5).count; });
  refuses<UsageError>("batched_nms", [&] { return batched_nms(boxes, scores, classes, -0.1).count; });
  refuses<UsageError>("batched_nms", [&] { return batched_nms(boxes, Tensor(), classes, 0.5).count; });
}

}  // namespace
}  // namespace hearth::test::nms_test
