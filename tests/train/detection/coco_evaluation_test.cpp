// SPDX-License-Identifier: Apache-2.0
// The evaluation of detections beside pycocotools (golden/make_coco_eval.py), of ranks, and of bad arguments.
#include "train/detection/coco_evaluation.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <limits>

#include "core/io/json_text.h"
#include "dist/process_group.h"
#include "tests/support/error_message.h"
#include "tests/support/places.h"
#include "tests/support/ranks.h"

namespace hearth::train::coco_evaluation_test {
namespace {

/// The sets of the tree, or of the file that HEARTH_COCO_SETS names.
const Json& made_sets() {
  const char* const other = std::getenv("HEARTH_COCO_SETS");
  static const Json document =
      read_json(other != nullptr ? other : test::source_dir() + "/tests/golden/coco_eval.json");
  return document.at("sets");
}

/// Column `column` of rows of a set.
template <class T>
Tensor column_of(const Json& rows, std::size_t column, std::size_t width = 1) {
  std::vector<T> values;
  for (const Json& row : rows.items())
    for (std::size_t i = column; i < column + width; ++i) values.push_back(static_cast<T>(row.items()[i].as_number()));
  const auto count = static_cast<std::int64_t>(rows.items().size());
  return Tensor::of(width == 1 ? Shape{count} : Shape{count, static_cast<std::int64_t>(width)}, values);
}

Tensor flags_of(const Json& rows, std::int64_t flag) {
  std::vector<std::uint8_t> values;
  for (const Json& row : rows.items()) values.push_back((row.items()[6].as_integer() & flag) != 0 ? 1 : 0);
  return Tensor::of({static_cast<std::int64_t>(values.size())}, values);
}

Detections detections_of(const Json& image) {
  const Json& rows = image.at("detected");
  return {column_of<double>(rows, 0, 4), column_of<double>(rows, 4), column_of<std::int64_t>(rows, 5)};
}

GroundTruth truth_of(const Json& image) {
  const Json& rows = image.at("truth");
  GroundTruth truth{column_of<double>(rows, 0, 4), column_of<std::int64_t>(rows, 4)};
  // A set has areas of all boxes or of none.
  if (!rows.items().empty() && rows.items()[0].items()[5].is_number()) truth.areas = column_of<double>(rows, 5);
  truth.crowd = flags_of(rows, 1);
  truth.ignored = flags_of(rows, 2);
  return truth;
}

CocoEvaluation evaluation_of(const Json& set) { return CocoEvaluation(set.at("classes").as_integer()); }

std::vector<double> figures_of(const CocoResult& result) {
  return {result.ap,   result.ap_50, result.ap_75,  result.ap_small, result.ap_medium, result.ap_large,
          result.ar_1, result.ar_10, result.ar_100, result.ar_small, result.ar_medium, result.ar_large};
}

void expect_near(const std::vector<double>& values, const Json& expected, std::size_t set, const char* what) {
  ASSERT_EQ(values.size(), expected.items().size());
  for (std::size_t i = 0; i < values.size(); ++i)
    EXPECT_NEAR(values[i], expected.items()[i].as_number(), 1e-9) << "set " << set << ", " << what << ' ' << i;
}

TEST(CocoEvaluation, EqualsPycocotools) {
  const std::vector<Json>& sets = made_sets().items();
  ASSERT_GE(sets.size(), 200U);
  for (std::size_t number = 0; number < sets.size(); ++number) {
    const Json& set = sets[number];
    CocoEvaluation evaluation = evaluation_of(set);
    for (const Json& image : set.at("images").items())
      evaluation.add(image.at("id").as_integer(), detections_of(image), truth_of(image));
    const CocoResult result = evaluation.result();
    expect_near(figures_of(result), set.at("figures"), number, "figure");
    expect_near(result.ap_by_class, set.at("ap_by_class"), number, "AP of class");
    ASSERT_EQ(result.precision.shape(), (Shape{evaluation.classes(), 10, 101}));
    const Json* const curves = set.find("precision_75");
    const double* const precision = result.precision.data<const double>();
    for (std::size_t label = 0; curves != nullptr && label < curves->items().size(); ++label) {
      const double* const curve = precision + (label * 10 + 5) * 101;
      expect_near(std::vector<double>(curve, curve + 101), curves->items()[label], number, "recall");
    }
  }
}

/// Equal scores keep the order of the images' ids, whichever rank has them; some ranks have no image.
TEST(CocoEvaluation, RanksEvaluateAsOneProcess) {
  const std::vector<Json>& sets = made_sets().items();
  for (const int ranks : {1, 2, 3}) {
    const auto evaluate = [&](Collective& group) {
      for (std::size_t number = 0; number < 60; ++number) {
        const std::vector<Json>& images = sets[number].at("images").items();
        CocoEvaluation mine = evaluation_of(sets[number]), all = mine;
        for (std::size_t i = 0; i < images.size(); ++i)
          for (CocoEvaluation* const evaluation : {&mine, &all})
            if (evaluation == &all || i % static_cast<std::size_t>(ranks) == static_cast<std::size_t>(group.rank()))
              evaluation->add(images[i].at("id").as_integer(), detections_of(images[i]), truth_of(images[i]));
        mine.reduce(group);
        const CocoResult result = mine.result(), expected = all.result();
        EXPECT_EQ(mine.images(), all.images());
        EXPECT_EQ(figures_of(result), figures_of(expected)) << "set " << number << ", " << ranks << " ranks";
        EXPECT_EQ(result.precision.to_doubles(), expected.precision.to_doubles());
      }
    };
    for (const std::string& failure : test::failures_of_ranks(dist::loopback_groups(ranks), evaluate))
      EXPECT_EQ(failure, "");
  }
}

Detections detected(const std::vector<double>& box, double score = 0.5, std::int64_t label = 0) {
  return {Tensor::of({1, 4}, box), Tensor::of<double>({1}, {score}), Tensor::of<std::int64_t>({1}, {label})};
}

GroundTruth labelled(const std::vector<double>& box, std::int64_t label = 0) {
  return {Tensor::of({1, 4}, box), Tensor::of<std::int64_t>({1}, {label})};
}

const std::vector<double> square{0, 0, 10, 10};

TEST(CocoEvaluation, OfOtherTypes) {
  CocoEvaluation evaluation(2);
  Detections detections = detected({0, 0, 10, 7}, 0.5, 1);
  detections.boxes = detections.boxes.to(DType::f32);
  detections.scores = detections.scores.to(DType::bf16);
  detections.labels = detections.labels.to(DType::i32);
  GroundTruth truth = labelled(square, 1);
  truth.areas = Tensor::of<float>({1}, {5000});
  truth.crowd = Tensor::of<std::int64_t>({1}, {0});
  evaluation.add(-3, detections, truth);
  const CocoResult result = evaluation.result();
  EXPECT_DOUBLE_EQ(result.ap_50, 1);
  EXPECT_EQ(result.ap_75, 0);
  EXPECT_DOUBLE_EQ(result.ap, 0.5) << "at 0.50 to 0.70";
  EXPECT_DOUBLE_EQ(result.ap_medium, 0.5);
  EXPECT_EQ(result.ap_small, -1);
  EXPECT_EQ(result.ap_by_class, (std::vector<double>{-1, result.ap}));
}

TEST(CocoEvaluation, OfNothing) {
  const CocoEvaluation evaluation(1);
  EXPECT_EQ(evaluation.images(), 0);
  EXPECT_EQ(figures_of(evaluation.result()), std::vector<double>(12, -1));
  EXPECT_THROW(CocoEvaluation(0), ConfigError);
  EXPECT_THROW(CocoEvaluation(65537), ConfigError);
}

class CocoEvaluationRefuses : public ::testing::Test {
 protected:
  template <class E>
  void expect(const Detections& detections, const GroundTruth& truth, const std::string& part) {
    EXPECT_PRED2(test::contains, test::error_message<E>([&] { evaluation_.add(1, detections, truth); }), part);
    EXPECT_EQ(evaluation_.images(), 0);
  }
  CocoEvaluation evaluation_{3};
  const Detections detections_ = detected(square);
  const GroundTruth truth_ = labelled(square);
};

TEST_F(CocoEvaluationRefuses, ValuesThatMeanNothing) {
  const double nan = std::nan(""), infinity = std::numeric_limits<double>::infinity();
  for (const std::vector<double>& box : {std::vector<double>{5, 0, 4, 10},
                                         {0, 5, 10, 4},
                                         {nan, 0, 10, 10},
                                         {0, 0, 10, nan},
                                         {0, 0, infinity, 0},
                                         {-1e308, 0, 1e308, 1}}) {
    expect<UsageError>(detected(box), truth_, "detections: boxes: box 0 is ");
    expect<UsageError>(detections_, labelled(box), "truth: boxes: box 0 is ");
  }
  expect<UsageError>(detected({30, 40, 10, 12}), truth_, "30 40 10 12; corners are finite numbers x0 <= x1");
  expect<UsageError>(detected(square, nan), truth_, "box 0 has score nan; scores are finite");
  expect<UsageError>(detected(square, infinity), truth_, "box 0 has score inf");
  GroundTruth truth = truth_;
  truth.areas = Tensor::of<double>({1}, {-1});
  expect<UsageError>(detections_, truth, "box 0 has area -1; areas are in square pixels");
  truth.areas = Tensor::of<double>({1}, {nan});
  expect<UsageError>(detections_, truth, "box 0 has area nan");
}

TEST_F(CocoEvaluationRefuses, LabelsOutsideOfTheClasses) {
  expect<IndexError>(detected(square, 0.5, -1), truth_, "detections: labels: box 0 has class -1 of 3");
  expect<IndexError>(detected(square, 0.5, 3), truth_, "box 0 has class 3 of 3; classes count from 0");
  expect<IndexError>(detections_, labelled(square, 3), "truth: labels: box 0 has class 3 of 3");
}

TEST_F(CocoEvaluationRefuses, TensorsThatDoNotFit) {
  const Tensor two = Tensor::zeros({2}), one_box = Tensor::zeros({4}), whole = Tensor::zeros({1}, DType::i64);
  expect<ShapeError>({detections_.boxes, two, detections_.labels}, truth_, "detections: scores f32 [2] for 1 boxes");
  expect<ShapeError>({detections_.boxes, detections_.scores, two.to(DType::i64)}, truth_,
                     "detections: labels i64 [2] for 1");
  expect<ShapeError>({one_box, detections_.scores, detections_.labels}, truth_, "boxes are [N, 4]");
  expect<ShapeError>(detections_, {truth_.boxes, two.to(DType::i32)}, "truth: labels i32 [2] for 1 boxes");
  expect<ShapeError>(detections_, {truth_.boxes, truth_.labels, two}, "truth: areas f32 [2] for 1 boxes");
  expect<ShapeError>(detections_, {truth_.boxes, truth_.labels, {}, two}, "truth: crowd f32 [2] for 1 boxes");
  expect<ShapeError>(detections_, {truth_.boxes, truth_.labels, {}, {}, two}, "truth: ignored f32 [2] for 1 boxes");
  expect<DTypeError>({detections_.boxes.to(DType::i64), detections_.scores, detections_.labels}, truth_,
                     "floating numbers");
  expect<DTypeError>({detections_.boxes, whole, detections_.labels}, truth_,
                     "detections: scores i64 [1]; give them as floating");
  expect<DTypeError>({detections_.boxes, detections_.scores, detections_.scores}, truth_, "classes are i64 or i32");
  expect<DTypeError>(detections_, {truth_.boxes, truth_.labels, whole}, "truth: areas i64 [1]; give them as floating");
  expect<UsageError>({{}, detections_.scores, detections_.labels}, truth_, "an image without any has boxes [0, 4]");
  expect<UsageError>({detections_.boxes, {}, detections_.labels}, truth_, "give the score of each box");
  expect<UsageError>({detections_.boxes, detections_.scores, {}}, truth_, "give the class of each box");
  expect<UsageError>(detections_, {}, "no truth: boxes");
}

TEST_F(CocoEvaluationRefuses, AnImageTwice) {
  evaluation_.add(7, detections_, truth_);
  EXPECT_PRED2(test::contains, test::error_message<UsageError>([&] { evaluation_.add(7, detections_, truth_); }),
               "image 7 was added before");
  EXPECT_DOUBLE_EQ(evaluation_.result().ap_50, 1);
  for (const std::string& failure : test::failures_of_ranks(dist::loopback_groups(2), [&](Collective& group) {
         CocoEvaluation evaluation(3);
         evaluation.add(7, detections_, truth_);
         evaluation.reduce(group);
       }))
    EXPECT_PRED2(test::contains, failure, "two ranks have image 7");
}

}  // namespace
}  // namespace hearth::train::coco_evaluation_test
