// SPDX-License-Identifier: Apache-2.0
#include "train/model/metrics.h"

#include <gtest/gtest.h>

#include "core/error.h"
#include "core/tensor.h"

namespace hearth::train::metrics_test {
namespace {

Tensor classes(const std::vector<std::int64_t>& values) {
  return Tensor::of<std::int64_t>({static_cast<std::int64_t>(values.size())}, values);
}

// Label 0: two correct, one taken for 1. Label 1: one correct, two taken for 0. Label 2: never. Label 3: never right.
TEST(ConfusionMatrix, CountsAndDerives) {
  ConfusionMatrix matrix(4);
  matrix.add(classes({0, 0, 1, 1, 0}), classes({0, 0, 0, 1, 1}));
  matrix.add(classes({0, 1, 2}), classes({1, 3, -100}), -100);
  EXPECT_EQ(matrix.count(0, 1), 1);
  EXPECT_EQ(matrix.count(1, 0), 2);
  EXPECT_EQ(matrix.count(3, 1), 1);
  EXPECT_DOUBLE_EQ(matrix.accuracy(), 3.0 / 7);
  EXPECT_DOUBLE_EQ(matrix.precision(0), 2.0 / 4);
  EXPECT_DOUBLE_EQ(matrix.recall(0), 2.0 / 3);
  EXPECT_DOUBLE_EQ(matrix.f1(0), 4.0 / 7);
  EXPECT_DOUBLE_EQ(matrix.iou(0), 2.0 / 5);
  EXPECT_DOUBLE_EQ(matrix.iou(1), 1.0 / 5);
  EXPECT_DOUBLE_EQ(matrix.iou(2), 0);
  EXPECT_DOUBLE_EQ(matrix.mean_iou(), (2.0 / 5 + 1.0 / 5 + 0) / 3) << "class 2 neither occurs nor is predicted";
  EXPECT_DOUBLE_EQ(matrix.mean_f1(), (4.0 / 7 + 2.0 / 6 + 0) / 3);
}

TEST(ConfusionMatrix, OfNothingIsZero) {
  const ConfusionMatrix matrix(2);
  EXPECT_EQ(matrix.accuracy(), 0);
  EXPECT_EQ(matrix.mean_iou(), 0);
}

TEST(ConfusionMatrix, RefusesWhatIsNoClass) {
  EXPECT_THROW(ConfusionMatrix(0), ConfigError);
  EXPECT_THROW(ConfusionMatrix(65537), ConfigError);
  ConfusionMatrix matrix(2);
  EXPECT_THROW(matrix.add(classes({0}), classes({2})), IndexError);
  EXPECT_THROW(matrix.add(classes({-1}), classes({0})), IndexError);
  EXPECT_THROW(matrix.add(classes({0}), classes({-100})), IndexError) << "not named as ignored";
  EXPECT_THROW(matrix.add(classes({0, 1}), classes({0})), ShapeError);
  EXPECT_THROW(matrix.add(classes({0}), Tensor::zeros({1})), DTypeError);
  EXPECT_THROW((void)matrix.iou(2), IndexError);
  EXPECT_THROW((void)matrix.count(0, -1), IndexError);
}

}  // namespace
}  // namespace hearth::train::metrics_test
