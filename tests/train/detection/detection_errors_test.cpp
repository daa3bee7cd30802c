// SPDX-License-Identifier: Apache-2.0
// Kinds of errors of detections and mixed up classes, on boxes laid out by hand.
#include "train/detection/detection_errors.h"

#include <gtest/gtest.h>

namespace hearth::train::detection_errors_test {
namespace {

struct Row {
  std::vector<double> corners;
  std::int64_t label;
  double score = 1;
  bool crowd = false, ignored = false;
};

template <class T, class Get>
Tensor column(const std::vector<Row>& rows, const Get& get) {
  std::vector<T> values;
  for (const Row& row : rows) values.push_back(static_cast<T>(get(row)));
  return Tensor::of<T>({static_cast<std::int64_t>(rows.size())}, values);
}

Tensor corners_of(const std::vector<Row>& rows) {
  std::vector<double> values;
  for (const Row& row : rows) values.insert(values.end(), row.corners.begin(), row.corners.end());
  return Tensor::of({static_cast<std::int64_t>(rows.size()), 4}, values);
}

Detections detections_of(const std::vector<Row>& rows) {
  return {corners_of(rows), column<double>(rows, [](const Row& row) { return row.score; }),
          column<std::int64_t>(rows, [](const Row& row) { return row.label; })};
}

GroundTruth truth_of(const std::vector<Row>& rows) {
  return {corners_of(rows),
          column<std::int64_t>(rows, [](const Row& row) { return row.label; }),
          {},
          column<std::int64_t>(rows, [](const Row& row) { return row.crowd ? 1 : 0; }),
          column<std::int64_t>(rows, [](const Row& row) { return row.ignored ? 1 : 0; })};
}

std::vector<JudgedBox> judged(const std::vector<Row>& detected, const std::vector<Row>& labelled) {
  return judged_boxes(detections_of(detected), truth_of(labelled), 2, 0.3);
}

using enum BoxOutcome;

std::vector<BoxOutcome> outcomes(const std::vector<Row>& detected, const std::vector<Row>& labelled) {
  std::vector<BoxOutcome> result;
  for (const JudgedBox& box : judged(detected, labelled)) result.push_back(box.outcome);
  return result;
}

TEST(DetectionErrors, EachKind) {
  const std::vector<JudgedBox> boxes =
      judged({{{200, 6, 210, 16}, 1, 0.45},
              {{0, 0, 10, 8}, 0, 0.8},
              {{100, 0, 110, 10}, 0, 0.7},
              {{100, 0, 110, 10}, 1, 0.2},
              {{200, 6, 210, 16}, 0, 0.6},
              {{500, 500, 510, 510}, 1, 0.5},
              {{0, 0, 10, 10}, 0, 0.9}},
             {{{0, 0, 10, 10}, 0}, {{100, 0, 110, 10}, 1}, {{200, 0, 210, 10}, 0}, {{300, 0, 320, 30}, 0}});
  struct Expected {
    BoxOutcome outcome;
    double score, overlap;
    double x;  // of the labelled box; -1 without
  };
  const std::vector<Expected> expected{
      {correct, 0.9, 1, 0},     {duplicate, 0.8, 0.8, 0},     {wrong_class, 0.7, 1, 100}, {wrong_place, 0.6, 0.25, 200},
      {background, 0.5, 0, -1}, {background, 0.45, 0.25, -1}, {missed, 0, 0, 300}};
  ASSERT_EQ(boxes.size(), expected.size());
  for (std::size_t i = 0; i < boxes.size(); ++i) {
    EXPECT_EQ(boxes[i].outcome, expected[i].outcome) << i;
    EXPECT_EQ(boxes[i].detected ? boxes[i].detected->score : 0, expected[i].score) << i;
    EXPECT_DOUBLE_EQ(boxes[i].overlap, expected[i].overlap) << i;
    EXPECT_EQ(boxes[i].labelled ? boxes[i].labelled->box.x : -1, expected[i].x) << i;
  }
}

TEST(DetectionErrors, OverlapsAtTheBounds) {
  const std::vector<Row> labelled{{{0, 0, 10, 10}, 0}};
  EXPECT_EQ(outcomes({{{0, 0, 10, 5}, 0, 0.3}}, labelled), (std::vector{correct}));
  EXPECT_EQ(outcomes({{{0, 0, 10, 5}, 1}}, labelled), (std::vector{wrong_class}));
  EXPECT_EQ(outcomes({{{0, 0, 10, 4.9}, 0}}, labelled), (std::vector{wrong_place}));
  EXPECT_EQ(outcomes({{{0, 0, 10, 1}, 0}}, labelled), (std::vector{wrong_place}));
  EXPECT_EQ(outcomes({{{0, 0, 10, 0.9}, 0}}, labelled), (std::vector{background, missed}));
  EXPECT_EQ(outcomes({{{0, 0, 10, 4.9}, 1}}, labelled), (std::vector{background, missed}));
}

/// Of the boxes that a detection may be of, the nearest decides; a box is of the best detection, not of the nearest.
TEST(DetectionErrors, TheNearestBoxAndTheBestDetection) {
  const std::vector<Row> two{{{0, 0, 10, 10}, 0}, {{0, 2, 10, 12}, 1}};
  EXPECT_EQ(outcomes({{{0, 0, 10, 10}, 0, 0.9}, {{0, 1, 10, 10}, 0, 0.8}, {{0, 2, 10, 12}, 0, 0.7}}, two),
            (std::vector{correct, duplicate, wrong_class}));
  const std::vector<Row> box{{{0, 0, 10, 10}, 0}};
  const std::vector<JudgedBox> boxes = judged({{{0, 0, 10, 10}, 0, 0.5}, {{0, 0, 10, 6}, 0, 0.9}}, box);
  ASSERT_EQ(boxes.size(), 2U);
  EXPECT_EQ(boxes[0].outcome, correct);
  EXPECT_EQ(boxes[0].detected->score, 0.9);
  EXPECT_EQ(boxes[1].outcome, duplicate);
  // A second box of the class is free for the second detection.
  EXPECT_EQ(outcomes({{{0, 0, 10, 10}, 0, 0.9}, {{0, 1, 10, 10}, 0, 0.8}}, {box[0], {{0, 2, 10, 12}, 0}}),
            (std::vector{correct, correct}));
}

TEST(DetectionErrors, CrowdsAndIgnoredBoxesDoNotCount) {
  const std::vector<Row> labelled{{{0, 0, 10, 10}, 1, 1, false, true}, {{100, 0, 200, 100}, 0, 1, true}};
  EXPECT_EQ(outcomes({}, labelled), std::vector<BoxOutcome>{});
  EXPECT_EQ(outcomes({{{0, 0, 10, 10}, 1},
                      {{0, 0, 10, 10}, 0},
                      {{110, 10, 120, 20}, 0},
                      {{130, 10, 140, 20}, 1},
                      {{90, 0, 110, 10}, 0}},
                     labelled),
            std::vector<BoxOutcome>{});
  EXPECT_EQ(outcomes({{{89, 0, 109, 10}, 0}, {{0, 0, 10, 4}, 1}}, labelled), (std::vector{background, background}));
  EXPECT_EQ(outcomes({{{110, 10, 120, 20}, 0}}, {labelled[1], {{110, 10, 120, 20}, 0}}), (std::vector{correct}));
}

TEST(DetectionErrors, RefusesWhatDoesNotFit) {
  EXPECT_THROW(judged({{{0, 0, 1, 1}, 2}}, {}), IndexError);
  EXPECT_THROW(judged({}, {{{0, 0, 1, 1}, -1}}), IndexError);
  EXPECT_THROW(judged({{{0, 0, -1, 1}, 0}}, {}), UsageError);
  ConfusionMatrix matrix(3);
  EXPECT_THROW(add_confusions(detections_of({{{0, 0, 1, 1}, 2}}), truth_of({}), 0, matrix), IndexError)
      << "the class of background";
}

TEST(DetectionErrors, ClassesMixedUp) {
  ConfusionMatrix matrix(3);
  const auto add = [&](const std::vector<Row>& detected, const std::vector<Row>& labelled) {
    add_confusions(detections_of(detected), truth_of(labelled), 0.3, matrix);
  };
  add({{{0, 0, 10, 10}, 0, 0.9},
       {{100, 0, 110, 9}, 0, 0.8},
       {{0, 0, 10, 9}, 0, 0.7},
       {{500, 0, 510, 10}, 1, 0.6},
       {{300, 0, 310, 10}, 0, 0.6},
       {{200, 0, 210, 10}, 1, 0.2}},
      {{{0, 0, 10, 10}, 0}, {{100, 0, 110, 10}, 1}, {{200, 0, 210, 10}, 1}, {{300, 0, 310, 10}, 1, 1, false, true}});
  // Boxes in one place: each detection matches that of its class.
  add({{{0, 0, 10, 10}, 1, 0.9}, {{0, 0, 10, 10}, 0, 0.8}}, {{{0, 0, 10, 10}, 0}, {{0, 0, 10, 10}, 1}});
  add({}, {});
  const std::int64_t expected[3][3] = {{2, 0, 0}, {1, 1, 1}, {1, 1, 0}};
  for (std::int64_t label = 0; label < 3; ++label)
    for (std::int64_t predicted = 0; predicted < 3; ++predicted)
      EXPECT_EQ(matrix.count(label, predicted), expected[label][predicted]) << label << ' ' << predicted;
}

}  // namespace
}  // namespace hearth::train::detection_errors_test
