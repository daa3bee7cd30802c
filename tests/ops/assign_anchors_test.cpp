// SPDX-License-Identifier: Apache-2.0
// Which box an anchor is to predict: torchvision's matchers, a plain loop, ties, and boxes that are ignored.
#include <algorithm>

#include "core/cuda/counters.h"
#include "ops/boxes/assign.h"
#include "ops/boxes/boxes.h"
#include "tests/ops/boxes_golden.h"
#include "tests/support/op_test.h"

namespace hearth::test::assign_anchors_test {
namespace {

using Values = std::vector<double>;
constexpr AnchorRule retinanet{}, ssd{.background = 0.5, .best = BestAnchors::first},
    plain{.foreground = 0.7, .background = 0.3, .best = BestAnchors::none};

/// The anchors of golden/make_boxes.py.
Values golden_anchors() {
  Values anchors;
  for (int y = 0; y < 96; y += 16)
    for (int x = 0; x < 128; x += 16)
      for (const auto& [w, h] : {std::pair(16, 16), {24, 12}, {12, 24}, {40, 40}, {56, 28}, {28, 56}})
        for (const int corner : {x - w / 2, y - h / 2, x + w / 2, y + h / 2})
          anchors.push_back(static_cast<double>(corner));
  return anchors;
}

std::int64_t golden_count(std::int64_t image) { return 2 + 3 * image; }

/// Those of an image there.
void append_golden_boxes(Values& boxes, std::int64_t image) {
  for (std::int64_t i = 0; i < golden_count(image); ++i) {
    const auto number = [&](std::int64_t a, std::int64_t b, std::int64_t m) {
      return static_cast<double>((a * (i + 11 * image) + b) % m);
    };
    const double x = number(37, 5, 97), y = number(53, 7, 71);
    boxes.insert(boxes.end(), {x, y, x + 8 + number(29, 3, 48), y + 8 + number(17, 1, 40)});
  }
}

class AssignAnchors : public testing::TestWithParam<DeviceType> {
 protected:
  void SetUp() override {
    if (device_count(GetParam()) == 0) GTEST_SKIP() << "there is no CUDA device";
  }
  Tensor boxes(const Values& values, DType dtype = DType::f32) const {
    return Tensor::of({static_cast<std::int64_t>(values.size() / 4), 4}, values).to(dtype).to(Device{GetParam()});
  }
  Tensor integers(const std::vector<std::int64_t>& values) const {
    return Tensor::of<std::int64_t>({static_cast<std::int64_t>(values.size())}, values).to(Device{GetParam()});
  }
  Tensor flags(const std::vector<std::int64_t>& values) const { return integers(values).to(DType::boolean); }
  /// What anchors of one image get.
  Values assigned(const Values& anchors, const Values& list, const AnchorRule& rule) const {
    return assign_anchors(boxes(anchors), {boxes(list), integers({static_cast<std::int64_t>(list.size() / 4)})}, rule)
        .to_doubles();
  }
};

TEST_P(AssignAnchors, FollowsTorchvisionsMatchers) {
  Values list;
  std::vector<std::int64_t> counts;
  for (std::int64_t image = 0; image < 4; ++image) {
    append_golden_boxes(list, image);
    counts.push_back(golden_count(image));
  }
  // An image without boxes between others.
  counts.insert(counts.begin() + 2, 0);
  for (const auto& [name, rule] : {std::pair("retinanet", retinanet), {"ssd", ssd}, {"plain", plain}})
    for (const DType dtype : {DType::f32, DType::f64}) {
      const Tensor anchors = boxes(golden_anchors(), dtype);
      const Values y = assign_anchors(anchors, {boxes(list, dtype), integers(counts)}, rule).to_doubles();
      const Json& wanted = boxes_golden::golden("assign").at(name);
      const auto points = static_cast<std::size_t>(anchors.dim(0));
      ASSERT_EQ(y.size(), 5 * points);
      double first = 0;
      for (std::size_t image = 0; image < 4; ++image) {
        ASSERT_EQ(wanted.at(image).size(), points);
        for (std::size_t p = 0; p < points; ++p) {
          const double index = wanted.at(image).at(p).as_number();
          ASSERT_EQ(y[(image < 2 ? image : image + 1) * points + p], index < 0 ? index : first + index)
              << name << ", image " << image << ", anchor " << p;
        }
        first += static_cast<double>(golden_count(static_cast<std::int64_t>(image)));
      }
      for (std::size_t p = 0; p < points; ++p) ASSERT_EQ(y[2 * points + p], background_point);
    }
}

TEST_P(AssignAnchors, BestAnchorsOfABox) {
  const Values anchors{0, 0, 10, 10, 20, 0, 30, 10, 40, 0, 50, 10};
  // Overlaps the first and the second by 3/23 each; the third is far.
  const Values box{7, 0, 23, 10};
  EXPECT_EQ(assigned(anchors, box, {0.5, 0.4, BestAnchors::each}), (Values{0, 0, -1}));
  EXPECT_EQ(assigned(anchors, box, {0.5, 0.4, BestAnchors::first}), (Values{0, -1, -1}));
  EXPECT_EQ(assigned(anchors, box, {0.5, 0.1, BestAnchors::first}), (Values{0, -2, -1}));
  EXPECT_EQ(assigned(anchors, box, {0.5, 0.4, BestAnchors::none}), (Values{-1, -1, -1}));
  EXPECT_EQ(assigned(anchors, box, {0.01, 0.01, BestAnchors::none}), (Values{0, 0, -1}));
  // Two boxes with one best anchor: it goes to the last, or to the one that it overlaps most.
  const Values two{0, 0, 10, 9, 0, 0, 10, 6};
  EXPECT_EQ(assigned(anchors, two, {0.5, 0.5, BestAnchors::first}), (Values{1, -1, -1}));
  EXPECT_EQ(assigned(anchors, two, {0.5, 0.5, BestAnchors::each}), (Values{0, -1, -1}));
  // Equal boxes: the first. Thresholds belong to the upper side.
  const Values equal{0, 0, 10, 5, 0, 0, 10, 5};
  EXPECT_EQ(assigned(anchors, equal, {0.5, 0.5, BestAnchors::none}), (Values{0, -1, -1}));
  EXPECT_EQ(assigned(anchors, equal, {0.51, 0.5, BestAnchors::none}), (Values{-2, -1, -1}));
}

TEST_P(AssignAnchors, BoxesWithoutAnOverlapGetNoAnchor) {
  const Values anchors{0, 0, 10, 10, 20, 0, 30, 10}, far{50, 50, 60, 60}, flat{2, 2, 2, 9};
  for (const Values& box : {far, flat})
    for (const AnchorRule& rule : {retinanet, ssd}) EXPECT_EQ(assigned(anchors, box, rule), (Values{-1, -1}));
}

TEST_P(AssignAnchors, AnchorsInIgnoredBoxesAreIgnored) {
  const Tensor anchors = boxes({0, 0, 10, 10, 20, 0, 30, 10, 46, 0, 56, 10, 90, 0, 99, 9});
  // The first box is ignored and covers two anchors and 4/10 of the third.
  const Tensor list = boxes({0, 0, 50, 50, 0, 0, 10, 9});
  const BoxList first_ignored{list, integers({2}), flags({1, 0})};
  for (const AnchorRule& rule : {retinanet, ssd})
    EXPECT_EQ(assign_anchors(anchors, first_ignored, rule).to_doubles(), (Values{1, -2, -1, -1}));
  // A target elsewhere does not make them background.
  EXPECT_EQ(assign_anchors(anchors, {list, integers({2}), flags({1, 1})}, ssd).to_doubles(), (Values{-2, -2, -1, -1}));
}

TEST_P(AssignAnchors, FollowsThePlainLoop) {
  const Values corners = golden_anchors();
  Values list;
  std::vector<std::int64_t> counts, marks;
  for (std::int64_t image = 0; image < 6; ++image) {
    append_golden_boxes(list, image);
    counts.push_back(golden_count(image));
    for (std::int64_t i = 0; i < counts.back(); ++i) marks.push_back((i + image) % 4 == 3);
  }
  const Tensor anchors = boxes(corners), all = boxes(list);
  const Values overlaps = box_iou(all.to(Device{}), anchors.to(Device{})).to_doubles();
  const auto points = static_cast<std::size_t>(anchors.dim(0));
  for (const AnchorRule& rule : {retinanet, ssd, plain}) {
    const Values y = assign_anchors(anchors, {all, integers(counts), flags(marks)}, rule).to_doubles();
    std::size_t begin = 0;
    for (std::size_t image = 0; image < counts.size(); ++image) {
      const std::size_t end = begin + static_cast<std::size_t>(counts[image]);
      for (std::size_t p = 0; p < points; ++p) {
        double best = -1, most = -1, forced = -1;
        bool is_best = false, inside = false;
        for (std::size_t i = begin; i < end; ++i) {
          const double overlap = overlaps[i * points + p], *const a = &corners[4 * p], *const b = &list[4 * i];
          if (marks[i] != 0) {
            const double w = std::min(a[2], b[2]) - std::max(a[0], b[0]),
                         h = std::min(a[3], b[3]) - std::max(a[1], b[1]);
            inside |= w > 0 && h > 0 && w * h >= rule.foreground * (a[2] - a[0]) * (a[3] - a[1]);
            continue;
          }
          if (overlap > most) most = overlap, best = static_cast<double>(i);
          const auto row = overlaps.begin() + static_cast<std::ptrdiff_t>(i * points);
          const auto peak = std::max_element(row, row + static_cast<std::ptrdiff_t>(points));
          is_best |= overlap > 0 && overlap == *peak;
          if (overlap > 0 && peak - row == static_cast<std::ptrdiff_t>(p)) forced = static_cast<double>(i);
        }
        double wanted = most >= rule.foreground ? best : most >= rule.background || inside ? -2 : -1;
        if (rule.best == BestAnchors::each && is_best) wanted = best;
        if (rule.best == BestAnchors::first && forced >= 0) wanted = forced;
        ASSERT_EQ(y[image * points + p], wanted) << "image " << image << ", anchor " << p;
      }
      begin = end;
    }
  }
}

TEST_P(AssignAnchors, NoBoxesNoAnchorsAndWrongCounts) {
  const Tensor anchors = boxes({0, 0, 8, 8});
  EXPECT_EQ(assign_anchors(anchors, {boxes({}), integers({0, 0})}).to_doubles(), (Values{-1, -1}));
  EXPECT_EQ(assign_anchors(boxes({}), {boxes({0, 0, 8, 8}), integers({1})}).shape(), (Shape{1, 0}));
  const auto wrong = [&](const std::vector<std::int64_t>& counts) {
    return assign_anchors(anchors, {boxes({0, 0, 8, 8, 0, 0, 8, 8}), integers(counts)}).to_doubles();
  };
  EXPECT_EQ(wrong({1}), (Values{0})) << "the second is spare";
  EXPECT_THROW(wrong({1, 2}), IndexError);
  EXPECT_THROW(wrong({3, -1}), IndexError);
}

INSTANTIATE_TEST_SUITE_P(Devices, AssignAnchors, testing::Values(DeviceType::cpu, DeviceType::cuda),
                         [](const auto& tried) { return tried.param == DeviceType::cpu ? "cpu" : "cuda"; });

TEST(CudaAssignAnchors, IsTwoLaunchesWithoutAWait) {
  if (device_count(DeviceType::cuda) == 0) GTEST_SKIP() << "there is no CUDA device";
  const Device device{DeviceType::cuda, 0};
  Values list;
  for (std::int64_t image = 0; image < 9; ++image) append_golden_boxes(list, image);
  const auto all = static_cast<std::int64_t>(list.size() / 4);
  const Tensor boxes = Tensor::of({all, 4}, list).to(DType::f32).to(device);
  const Tensor anchors = Tensor::of({288, 4}, golden_anchors()).to(DType::f32).to(device);
  const Tensor few = Tensor::of<std::int64_t>({1}, std::vector<std::int64_t>{all}).to(device);
  std::vector<std::int64_t> counts;
  for (std::int64_t image = 0; image < 9; ++image) counts.push_back(golden_count(image));
  const Tensor many = Tensor::of<std::int64_t>({9}, counts).to(device);
  for (const Tensor& of_images : {few, many}) {
    const cuda::Counters before = cuda::counters();
    (void)assign_anchors(anchors, {boxes, of_images});
    const cuda::Counters done = cuda::counters() - before;
    EXPECT_EQ(done.launches, 2);
    EXPECT_EQ(done.waits, 0);
  }
}

TEST(AssignAnchorsRefusal, Arguments) {
  const Tensor anchors = Tensor::zeros({2, 4}), counts = Tensor::zeros({1}, DType::i64);
  const BoxList none{Tensor::zeros({0, 4}), counts};
  refuses<UsageError>("assign_anchors", [&] { return assign_anchors(Tensor(), none); });
  refuses<ShapeError>("assign_anchors", [&] { return assign_anchors(Tensor::zeros({2, 5}), none); });
  refuses<ShapeError>("assign_anchors", [&] { return assign_anchors(anchors, {Tensor::zeros({4}), counts}); });
  refuses<DTypeError>("assign_anchors", [&] { return assign_anchors(anchors.to(DType::f64), none); });
  refuses<DTypeError>("assign_anchors", [&] {
    return assign_anchors(anchors.to(DType::bf16), {Tensor::zeros({0, 4}, DType::bf16), counts});
  });
  refuses<UsageError>("assign_anchors", [&] { return assign_anchors(anchors, none, {0.4, 0.5}); });
  refuses<UsageError>("assign_anchors", [&] { return assign_anchors(anchors, none, {1.5, 0.5}); });
  refuses<UsageError>("assign_anchors", [&] { return assign_anchors(anchors, none, {0, 0}); });
  refuses<ShapeError>("assign_anchors", [&] {
    return assign_anchors(anchors, {Tensor::zeros({0, 4}), counts, Tensor::zeros({3}, DType::boolean)});
  });
}

}  // namespace
}  // namespace hearth::test::assign_anchors_test
