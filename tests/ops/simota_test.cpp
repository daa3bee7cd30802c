// SPDX-License-Identifier: Apache-2.0
// SimOTA beside a plain loop over images that has all costs in a table, its ties, and its launches.
#include "ops/boxes/simota.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "core/cuda/counters.h"
#include "ops/ops.h"
#include "tests/support/op_test.h"

namespace hearth::test::simota_test {
namespace {

using Values = std::vector<double>;

double logistic(double x) { return 1 / (1 + std::exp(-x)); }

/// Made predictions for points of strides 8, 16 and 32 on images of 64 x 96 pixels, near their boxes.
struct Problem {
  static constexpr std::int64_t classes_count = 5, points = 96 + 24 + 6;
  std::int64_t images;
  Values anchors, predicted, logits;  ///< logits [N, P, 1 + C]
  Values boxes;
  std::vector<std::int64_t> counts, classes, ignored;

  explicit Problem(std::int64_t images_) : images(images_) {
    std::vector<std::array<double, 4>> of_points;
    for (const int side : {8, 16, 32})
      for (int row = 0; row < 64 / side; ++row)
        for (int column = 0; column < 96 / side; ++column)
          of_points.push_back({static_cast<double>(column * side), static_cast<double>(row * side),
                               static_cast<double>((column + 1) * side), static_cast<double>((row + 1) * side)});
    for (const auto& a : of_points) anchors.insert(anchors.end(), a.begin(), a.end());
    std::int64_t draw = 0;
    const auto uniform = [&] { return static_cast<double>((draw++ * 7919 + 13) % 10007) / 10007; };
    for (std::int64_t image = 0; image < images; ++image) {
      counts.push_back(image * 5 % 7);
      const std::size_t first = boxes.size();
      for (std::int64_t i = 0; i < counts.back(); ++i) {
        const double x = 70 * uniform(), y = 44 * uniform();
        boxes.insert(boxes.end(), {x, y, x + 8 + 50 * uniform(), y + 8 + 40 * uniform()});
        classes.push_back((image + i) % classes_count);
        ignored.push_back((image + i) % 6 == 5 ? 1 : 0);
      }
      for (const auto& a : of_points) {
        // Most points predict one of the boxes, moved by some pixels.
        std::array<double, 4> box{a[0] - 5, a[1] - 5, a[2] + 5, a[3] + 5};
        if (boxes.size() > first && draw % 5 != 0) {
          const auto of = static_cast<std::int64_t>(uniform() * static_cast<double>(counts.back()));
          std::copy_n(boxes.begin() + static_cast<std::ptrdiff_t>(first) + 4 * of, 4, box.begin());
        }
        const double shift = 6 * uniform();
        for (const double corner : box) predicted.push_back(corner + shift + uniform());
        for (std::int64_t c = 0; c <= classes_count; ++c) logits.push_back(6 * uniform() - 3);
      }
    }
  }
  std::int64_t all() const { return static_cast<std::int64_t>(classes.size()); }
  /// The problem of one image alone.
  Problem of_image(std::int64_t image) const {
    Problem single(0);
    single.images = 1;
    single.counts = {counts[static_cast<std::size_t>(image)]};
    const auto part = [&](auto& to, const auto& from, std::int64_t begin, std::int64_t size) {
      to.assign(from.begin() + begin, from.begin() + begin + size);
    };
    const std::int64_t begin = std::accumulate(counts.begin(), counts.begin() + image, std::int64_t{0});
    part(single.boxes, boxes, begin * 4, single.counts[0] * 4);
    part(single.classes, classes, begin, single.counts[0]);
    part(single.ignored, ignored, begin, single.counts[0]);
    part(single.predicted, predicted, image * points * 4, points * 4);
    part(single.logits, logits, image * points * (1 + classes_count), points * (1 + classes_count));
    return single;
  }

  SimotaAssignment solved(DType dtype, Device device, bool with_ignored = true) const {
    const auto floats = [&](const Shape& shape, const Values& values) {
      return Tensor::of(shape, values).to(dtype).to(device);
    };
    const auto integers = [&](const std::vector<std::int64_t>& values) {
      return Tensor::of<std::int64_t>({static_cast<std::int64_t>(values.size())}, values).to(device);
    };
    const Tensor rows = floats({images, points, 1 + classes_count}, logits);
    BoxList list{floats({all(), 4}, boxes), integers(counts)};
    if (with_ignored) list.ignored = integers(ignored).to(DType::boolean);
    return assign_simota(floats({points, 4}, anchors),
                         {floats({images, points, 4}, predicted), reshape(slice(rows, -1, 0, 1), {images, points}),
                          slice(rows, -1, 1, 1 + classes_count)},
                         list, integers(classes));
  }
};

/// The rule as the paper's code states it: a table of all costs of an image.
struct Expected {
  Values boxes, overlaps;
  int shared = 0, ignored = 0;

  explicit Expected(const Problem& problem) {
    std::size_t begin = 0;
    for (std::int64_t image = 0; image < problem.images; ++image) {
      const std::size_t end = begin + static_cast<std::size_t>(problem.counts[static_cast<std::size_t>(image)]);
      add_image(problem, static_cast<std::size_t>(image) * Problem::points, begin, end);
      begin = end;
    }
  }

 private:
  void add_image(const Problem& problem, std::size_t first_row, std::size_t begin, std::size_t end) {
    constexpr std::size_t count = Problem::points, width = 1 + Problem::classes_count;
    std::vector<std::size_t> targets;
    for (std::size_t box = begin; box < end; ++box)
      if (problem.ignored[box] == 0) targets.push_back(box);
    std::vector<std::vector<bool>> near(targets.size(), std::vector<bool>(count));
    std::vector<Values> cost(targets.size(), Values(count)), overlap = cost;
    std::vector<bool> candidate(count);
    for (std::size_t t = 0; t < targets.size(); ++t)
      for (std::size_t p = 0; p < count; ++p) {
        const double *const a = &problem.anchors[4 * p], *const b = &problem.boxes[4 * targets[t]];
        near[t][p] = std::max(std::abs(a[0] + a[2] - b[0] - b[2]) / 2, std::abs(a[1] + a[3] - b[1] - b[3]) / 2) <
                     1.5 * (a[2] - a[0]);
        candidate[p] = candidate[p] || near[t][p];
        const double* const guess = &problem.predicted[4 * (first_row + p)];
        const double w = std::min(guess[2], b[2]) - std::max(guess[0], b[0]),
                     h = std::min(guess[3], b[3]) - std::max(guess[1], b[1]);
        const double shared_area = std::max(w, 0.0) * std::max(h, 0.0);
        const double joined = (guess[2] - guess[0]) * (guess[3] - guess[1]) + (b[2] - b[0]) * (b[3] - b[1]);
        overlap[t][p] = shared_area / (joined - shared_area);
        const double* const logits = &problem.logits[width * (first_row + p)];
        for (std::size_t c = 0; c + 1 < width; ++c) {
          const double q = std::sqrt(logistic(logits[0]) * logistic(logits[1 + c]));
          cost[t][p] -= static_cast<std::size_t>(problem.classes[targets[t]]) == c ? std::log(q) : std::log(1 - q);
        }
        cost[t][p] += -3 * std::log(overlap[t][p] + 1e-8) + (near[t][p] ? 0 : 1e6);
      }
    std::vector<std::vector<std::size_t>> takers(count);
    for (std::size_t t = 0; t < targets.size(); ++t) {
      Values largest;
      std::vector<std::size_t> order;
      for (std::size_t p = 0; p < count; ++p)
        if (candidate[p]) largest.push_back(overlap[t][p]), order.push_back(p);
      std::sort(largest.rbegin(), largest.rend());
      largest.resize(std::min<std::size_t>(largest.size(), 10));
      const auto k = static_cast<std::size_t>(std::max(1.0, std::accumulate(largest.begin(), largest.end(), 0.0)));
      std::sort(order.begin(), order.end(), [&](std::size_t p, std::size_t q) { return cost[t][p] < cost[t][q]; });
      for (std::size_t i = 0; i < std::min(k, order.size()); ++i) takers[order[i]].push_back(t);
    }
    for (std::size_t p = 0; p < count; ++p) {
      if (takers[p].empty()) {
        const double x = (problem.anchors[4 * p] + problem.anchors[4 * p + 2]) / 2,
                     y = (problem.anchors[4 * p + 1] + problem.anchors[4 * p + 3]) / 2;
        bool in_ignored = false;
        for (std::size_t box = begin; box < end; ++box) {
          const double* const b = &problem.boxes[4 * box];
          in_ignored = in_ignored || (problem.ignored[box] != 0 && x > b[0] && y > b[1] && x < b[2] && y < b[3]);
        }
        boxes.push_back(in_ignored ? ignored_point : background_point);
        overlaps.push_back(0);
        ignored += in_ignored ? 1 : 0;
        continue;
      }
      std::size_t best = takers[p][0];
      if (takers[p].size() > 1) {
        ++shared;
        best = 0;
        for (std::size_t t = 1; t < targets.size(); ++t)
          if (cost[t][p] < cost[best][p]) best = t;
      }
      boxes.push_back(static_cast<double>(targets[best]));
      overlaps.push_back(overlap[best][p]);
    }
  }
};

class AssignSimota : public testing::TestWithParam<DeviceType> {
 protected:
  void SetUp() override {
    if (device_count(GetParam()) == 0) GTEST_SKIP() << "there is no CUDA device";
  }
  Device device() const { return Device{GetParam()}; }
  Tensor floats(const Shape& shape, const Values& values) const { return Tensor::of(shape, values).to(device()); }
  Tensor integers(const std::vector<std::int64_t>& values) const {
    return Tensor::of<std::int64_t>({static_cast<std::int64_t>(values.size())}, values).to(device());
  }
};

TEST_P(AssignSimota, FollowsThePlainLoop) {
  const Problem problem(12);
  const Expected expected(problem);
  EXPECT_GT(expected.shared, 5);
  EXPECT_GT(expected.ignored, 50);
  const SimotaAssignment y = problem.solved(DType::f64, device());
  EXPECT_EQ(y.boxes.shape(), (Shape{12, Problem::points}));
  EXPECT_EQ(y.boxes.to_doubles(), expected.boxes);
  const Values overlaps = y.overlaps.to_doubles();
  double matched = 0;
  for (std::size_t i = 0; i < overlaps.size(); ++i) {
    EXPECT_NEAR(overlaps[i], expected.overlaps[i], 1e-12) << i;
    matched += expected.boxes[i] >= 0 ? 1 : 0;
  }
  EXPECT_GT(matched, 100);
  // No two costs are near enough for f32 to confuse them.
  EXPECT_EQ(problem.solved(DType::f32, device()).boxes.to_doubles(), expected.boxes);
}

TEST_P(AssignSimota, ABatchIsTheLoopOverImagesBitByBit) {
  const Problem problem(5);
  for (const DType dtype : {DType::f32, DType::f64})
    for (const bool with_ignored : {false, true}) {
      const SimotaAssignment batch = problem.solved(dtype, device(), with_ignored);
      const Values boxes = batch.boxes.to_doubles(), overlaps = batch.overlaps.to_doubles();
      std::int64_t first = 0;
      for (std::int64_t image = 0; image < problem.images; ++image) {
        const SimotaAssignment alone = problem.of_image(image).solved(dtype, device(), with_ignored);
        const Values of_boxes = alone.boxes.to_doubles(), of_overlaps = alone.overlaps.to_doubles();
        for (std::size_t p = 0; p < Problem::points; ++p) {
          const std::size_t row = static_cast<std::size_t>(image) * Problem::points + p;
          ASSERT_EQ(boxes[row], of_boxes[p] >= 0 ? of_boxes[p] + static_cast<double>(first) : of_boxes[p]);
          ASSERT_EQ(overlaps[row], of_overlaps[p]);
        }
        first += problem.counts[static_cast<std::size_t>(image)];
      }
    }
}

TEST_P(AssignSimota, OfEqualsTheFirstCounts) {
  // Four points around the centre of two equal boxes, all with one prediction. Ten ious of at most one half make k 1.
  const Tensor anchors = floats({4, 4}, {0, 0, 8, 8, 8, 0, 16, 8, 0, 8, 8, 16, 8, 8, 16, 16});
  Values predicted;
  for (int p = 0; p < 4; ++p) predicted.insert(predicted.end(), {0, 0, 16, 4});
  const PointPredictions same{floats({1, 4, 4}, predicted), floats({1, 4}, Values(4)), floats({1, 4, 2}, Values(8))};
  const BoxList equals{floats({2, 4}, {0, 0, 16, 16, 0, 0, 16, 16}), integers({2})};
  const SimotaAssignment y = assign_simota(anchors, same, equals, integers({1, 1}));
  EXPECT_EQ(y.boxes.to_doubles(), (Values{0, -1, -1, -1}));
  EXPECT_EQ(y.overlaps.to_doubles(), (Values{0.25, 0, 0, 0}));
  // A cheaper class: the second box gets the point that both take.
  const PointPredictions second{same.boxes, same.objectness, floats({1, 4, 2}, {0, 2, 0, 1, 0, 1, 0, 1})};
  EXPECT_EQ(assign_simota(anchors, second, equals, integers({0, 1})).boxes.to_doubles()[0], 1);
}

TEST_P(AssignSimota, PointsAreTakenUpToTheSumOfTheOverlaps) {
  // 16 points near the centre, 12 of which predict the box exactly: ten ious of 1.
  Values anchors, predicted;
  for (int p = 0; p < 16; ++p) {
    const double x = 8 * (p % 4), y = 8 * (p / 4 % 4);
    anchors.insert(anchors.end(), {x - 4, y - 4, x + 12, y + 12});
    predicted.insert(predicted.end(), {p < 12 ? 0.0 : 90.0, 0, 32, 32});
  }
  const auto taken_points = [&](double width) {
    Values wide = predicted;
    for (std::size_t p = 0; p < 16; ++p) wide[4 * p + 2] = width;
    const Values y =
        assign_simota(floats({16, 4}, anchors),
                      {floats({1, 16, 4}, wide), floats({1, 16}, Values(16)), floats({1, 16, 1}, Values(16))},
                      {floats({1, 4}, {0, 0, 32, 32}), integers({1})}, integers({0}))
            .boxes.to_doubles();
    return std::count(y.begin(), y.end(), 0.0);
  };
  EXPECT_EQ(taken_points(32), 10);
  EXPECT_EQ(taken_points(16), 5);
  EXPECT_EQ(taken_points(15.9), 4);
  EXPECT_EQ(taken_points(1), 1);
}

TEST_P(AssignSimota, PredictionsThatAreNoNumbersComeLast) {
  const double nan = std::nan("");
  const Tensor anchors = floats({2, 4}, {0, 0, 8, 8, 4, 0, 12, 8});
  const BoxList list{floats({1, 4}, {0, 0, 8, 8}), integers({1})};
  const Tensor zeros = floats({1, 2}, {0, 0}), scores = floats({1, 2, 1}, {0, 0});
  const auto chosen = [&](const Values& boxes, const Values& objectness) {
    return assign_simota(anchors, {floats({1, 2, 4}, boxes), floats({1, 2}, objectness), scores}, list, integers({0}))
        .boxes.to_doubles();
  };
  EXPECT_EQ(chosen({nan, 0, 8, 8, 20, 0, 28, 8}, {0, 0}), (Values{-1, 0}));
  EXPECT_EQ(chosen({0, 0, 8, 8, 20, 0, 28, 8}, {nan, 0}), (Values{-1, 0}));
}

TEST_P(AssignSimota, NoBoxesAndWrongLists) {
  const Tensor anchors = floats({1, 4}, {0, 0, 8, 8});
  const auto of = [&](std::int64_t images, const Values& boxes, const std::vector<std::int64_t>& counts,
                      const std::vector<std::int64_t>& classes) {
    const Values predicted(static_cast<std::size_t>(4 * images), 1), logits(static_cast<std::size_t>(images), 0);
    return assign_simota(
               anchors,
               {floats({images, 1, 4}, predicted), floats({images, 1}, logits), floats({images, 1, 1}, logits)},
               {floats({static_cast<std::int64_t>(classes.size()), 4}, boxes), integers(counts)}, integers(classes))
        .boxes.to_doubles();
  };
  EXPECT_EQ(of(2, {}, {0, 0}, {}), (Values{-1, -1}));
  // Its centre is no point's.
  EXPECT_EQ(of(1, {60, 60, 80, 80}, {1}, {0}), (Values{-1}));
  const Values two{0, 0, 8, 8, 0, 0, 8, 8};
  EXPECT_EQ(of(2, two, {1, 1}, {0, 0}), (Values{0, 1}));
  EXPECT_EQ(of(1, two, {1}, {0, 9}), (Values{0})) << "the second is spare";
  EXPECT_THROW(of(1, two, {3}, {0, 0}), IndexError);
  EXPECT_THROW(of(2, two, {3, -1}, {0, 0}), IndexError);
  EXPECT_THROW(of(1, two, {2}, {0, 1}), IndexError);
  EXPECT_THROW(of(1, two, {2}, {-1, 0}), IndexError);
}

INSTANTIATE_TEST_SUITE_P(Devices, AssignSimota, testing::Values(DeviceType::cpu, DeviceType::cuda),
                         [](const auto& tried) { return tried.param == DeviceType::cpu ? "cpu" : "cuda"; });

TEST(CudaAssignSimota, IsThreeLaunchesForAnyNumberOfImages) {
  if (device_count(DeviceType::cuda) == 0) GTEST_SKIP() << "there is no CUDA device";
  const Device gpu{DeviceType::cuda, 0};
  for (const std::int64_t images : {1, 8}) {
    Problem problem(images + 1);
    if (images == 1) problem = problem.of_image(1);
    const auto on_gpu = [&](const Shape& shape, const Values& values) {
      return Tensor::of(shape, values).to(DType::f32).to(gpu);
    };
    const auto count = static_cast<std::int64_t>(problem.counts.size());
    const Tensor anchors = on_gpu({Problem::points, 4}, problem.anchors);
    const Tensor rows = on_gpu({count, Problem::points, 1 + Problem::classes_count}, problem.logits);
    const PointPredictions predicted{on_gpu({count, Problem::points, 4}, problem.predicted),
                                     reshape(slice(rows, -1, 0, 1), {count, Problem::points}).contiguous(),
                                     slice(rows, -1, 1, 1 + Problem::classes_count)};
    const BoxList list{on_gpu({problem.all(), 4}, problem.boxes),
                       Tensor::of<std::int64_t>({count}, problem.counts).to(gpu)};
    const Tensor classes = Tensor::of<std::int64_t>({problem.all()}, problem.classes).to(gpu);
    const cuda::Counters before = cuda::counters();
    (void)assign_simota(anchors, predicted, list, classes);
    const cuda::Counters done = cuda::counters() - before;
    EXPECT_EQ(done.launches, 3);
    EXPECT_EQ(done.waits, 0);
  }
}

TEST(AssignSimotaRefusal, Arguments) {
  const Tensor anchors = Tensor::zeros({2, 4}), counts = Tensor::zeros({1}, DType::i64),
               classes = Tensor::zeros({0}, DType::i64);
  const PointPredictions predicted{Tensor::zeros({1, 2, 4}), Tensor::zeros({1, 2}), Tensor::zeros({1, 2, 3})};
  const BoxList none{Tensor::zeros({0, 4}), counts};
  const auto refused = [&]<class E>(const Tensor& other_anchors, const PointPredictions& guesses, const BoxList& list,
                                    const Tensor& of_boxes, const SimotaOptions& options = {}) {
    refuses<E>("assign_simota", [&] { return assign_simota(other_anchors, guesses, list, of_boxes, options).boxes; });
  };
  refused.operator()<UsageError>(Tensor(), predicted, none, classes);
  refused.operator()<UsageError>(anchors, {Tensor(), predicted.objectness, predicted.scores}, none, classes);
  refused.operator()<UsageError>(anchors, predicted, none, Tensor());
  refused.operator()<ShapeError>(Tensor::zeros({3, 4}), predicted, none, classes);
  refused.operator()<ShapeError>(anchors, {predicted.boxes, Tensor::zeros({2, 2}), predicted.scores}, none, classes);
  refused.operator()<ShapeError>(anchors, {predicted.boxes, predicted.objectness, Tensor::zeros({1, 2, 0})}, none,
                                 classes);
  refused.operator()<ShapeError>(anchors, predicted, {Tensor::zeros({4}), counts}, classes);
  refused.operator()<ShapeError>(anchors, predicted, {none.boxes, Tensor::zeros({2}, DType::i64)}, classes);
  refused.operator()<ShapeError>(anchors, predicted, none, Tensor::zeros({1}, DType::i64));
  refused.operator()<ShapeError>(anchors, predicted, {none.boxes, counts, Tensor::zeros({3}, DType::boolean)}, classes);
  refused.operator()<DTypeError>(anchors.to(DType::f64), predicted, none, classes);
  refused.operator()<DTypeError>(anchors, predicted, none, Tensor::zeros({0}));
  refused.operator()<DTypeError>(anchors.to(DType::f16), predicted, {none.boxes.to(DType::f16), counts}, classes);
  refused.operator()<UsageError>(anchors, predicted, none, classes, SimotaOptions{.radius = 0});
  refused.operator()<UsageError>(anchors, predicted, none, classes, SimotaOptions{.overlap_weight = -1});
}

}  // namespace
}  // namespace hearth::test::simota_test
