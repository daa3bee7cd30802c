// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "core/error.h"
#include "core/tensor.h"
#include "train/model/metrics.h"
#include "train/task/contrastive.h"

namespace hearth::train::target_metrics_test {
namespace {

TEST(RegressionErrors, OfHandComputedValues) {
  RegressionErrors errors;
  errors.add(Tensor::of<double>({3, 2}, {1, 0, 2, 0, 5, 1}), Tensor::of<double>({3, 2}, {1, 5, 3, 5, 8, 5}));
  // Target 0: 1, 3, 8 and 2 with errors 0, -1, -3, 0: mean 3.5, squares around it 29. Target 1 is constant, and missed.
  errors.add(Tensor::of<double>({1, 2}, {2, 5}), Tensor::of<double>({1, 2}, {2, 5}));
  EXPECT_EQ(errors.samples(), 4);
  EXPECT_DOUBLE_EQ(errors.mse(), (0 + 1 + 9 + 0 + 25 + 25 + 16 + 0) / 8.0);
  EXPECT_DOUBLE_EQ(errors.mae(), (0 + 1 + 3 + 0 + 5 + 5 + 4 + 0) / 8.0);
  EXPECT_DOUBLE_EQ(errors.r2(), ((1 - 10.0 / 29) + 0) / 2);
}

TEST(RegressionErrors, DoNotCancelFarFromZero) {
  RegressionErrors errors;
  for (const double value : {1e9 + 1, 1e9 + 2, 1e9 + 3})
    errors.add(Tensor::of<double>({1}, {value + 0.5}), Tensor::of<double>({1}, {value}));
  EXPECT_DOUBLE_EQ(errors.r2(), 1 - 0.75 / 2);
}

TEST(RegressionErrors, OfNothingAndOfWhatDoesNotFit) {
  RegressionErrors errors;
  EXPECT_EQ(errors.mse(), 0);
  EXPECT_EQ(errors.mae(), 0);
  EXPECT_EQ(errors.r2(), 0);
  EXPECT_THROW(errors.add(Tensor::zeros({2, 1}), Tensor::zeros({2})), ShapeError);
  EXPECT_THROW(errors.add(Tensor::zeros({2, 1, 1}), Tensor::zeros({2, 1, 1})), ShapeError);
  EXPECT_THROW(errors.add(Tensor::zeros({2}), Tensor::zeros({2}, DType::i64)), DTypeError);
  errors.add(Tensor::zeros({2, 3}), Tensor::zeros({2, 3}));
  EXPECT_THROW(errors.add(Tensor::zeros({2, 2}), Tensor::zeros({2, 2})), ShapeError);
  EXPECT_DOUBLE_EQ(errors.r2(), 1) << "constant targets without an error";
}

// Label 0 in samples 0, 1, 3; label 1 in sample 2; label 2 in none, and never predicted.
MultiLabelCounts example() {
  MultiLabelCounts counts(3);
  counts.add(Tensor::of<float>({2, 3}, {0.9F, 0.1F, 0, 0.4F, 0.8F, 0.5F}),
             Tensor::of<float>({2, 3}, {1, 0, 0, 1, 0, 0}));
  counts.add(Tensor::of<float>({2, 3}, {0.6F, 0.7F, 0.2F, 0.6F, 0.2F, 0.1F}),
             Tensor::of<std::uint8_t>({2, 3}, {0, 1, 0, 1, 0, 0}));
  return counts;
}

TEST(MultiLabelCounts, OfHandComputedValues) {
  const MultiLabelCounts counts = example();
  EXPECT_DOUBLE_EQ(counts.of(0).precision(), 2.0 / 3);
  EXPECT_DOUBLE_EQ(counts.of(0).recall(), 2.0 / 3);
  EXPECT_DOUBLE_EQ(counts.of(1).precision(), 1.0 / 2);
  EXPECT_DOUBLE_EQ(counts.of(1).recall(), 1);
  EXPECT_DOUBLE_EQ(counts.of(1).f1(), 2.0 / 3);
  EXPECT_DOUBLE_EQ(counts.mean_precision(), (2.0 / 3 + 1.0 / 2) / 2) << "label 2 does not count";
  EXPECT_DOUBLE_EQ(counts.mean_recall(), (2.0 / 3 + 1) / 2);
  EXPECT_DOUBLE_EQ(counts.mean_f1(), 2.0 / 3);
  EXPECT_DOUBLE_EQ(counts.all().precision(), 3.0 / 5);
  EXPECT_DOUBLE_EQ(counts.all().recall(), 3.0 / 4);
  EXPECT_DOUBLE_EQ(counts.all().f1(), 6.0 / 9);
  EXPECT_DOUBLE_EQ(counts.exact(), 2.0 / 4) << "samples 0 and 3";
}

TEST(MultiLabelCounts, AveragePrecisionByDescendingScore) {
  const MultiLabelCounts counts = example();
  // Label 0: 0.9 yes; 0.6 yes and no, one step; 0.4 yes.
  EXPECT_DOUBLE_EQ(counts.average_precision(0), (1 + 2.0 / 3 + 3.0 / 4) / 3);
  // Label 1: 0.8 no; 0.7 yes.
  EXPECT_DOUBLE_EQ(counts.average_precision(1), 1.0 / 2);
  EXPECT_EQ(counts.average_precision(2), 0);
  EXPECT_DOUBLE_EQ(counts.mean_average_precision(), ((1 + 2.0 / 3 + 3.0 / 4) / 3 + 1.0 / 2) / 2);
}

TEST(MultiLabelCounts, OfNothingAndOfWhatDoesNotFit) {
  MultiLabelCounts counts(2);
  EXPECT_EQ(counts.mean_f1(), 0);
  EXPECT_EQ(counts.exact(), 0);
  EXPECT_EQ(counts.mean_average_precision(), 0);
  EXPECT_THROW(MultiLabelCounts(0), ConfigError);
  EXPECT_THROW(counts.add(Tensor::zeros({1, 3}), Tensor::zeros({1, 3})), ShapeError);
  EXPECT_THROW(counts.add(Tensor::zeros({1, 2}), Tensor::zeros({2, 2})), ShapeError);
  EXPECT_THROW(counts.add(Tensor::zeros({1, 2}, DType::i64), Tensor::zeros({1, 2})), DTypeError);
  EXPECT_THROW((void)counts.of(2), IndexError);
  EXPECT_THROW((void)counts.average_precision(-1), IndexError);
}

TEST(RecallAt1, CountsPartnersThatAreNearest) {
  const Tensor first = Tensor::of<double>({3, 2}, {1, 0, 0, 1, 1, 1});
  const Tensor second = Tensor::of<double>({3, 2}, {2, 0, 3, 1, 0, 1});
  // Row 0 is nearest to 1, row 1 to 1 (of equals the first), row 2 to 1.
  EXPECT_DOUBLE_EQ(recall_at_1(first, second), 1.0 / 3);
  EXPECT_DOUBLE_EQ(recall_at_1(first, first), 1) << "rows 0 and 1 are as near to row 2, which comes later";
  EXPECT_THROW((void)recall_at_1(first, Tensor::zeros({2, 2}, DType::f64)), ShapeError);
  EXPECT_THROW((void)recall_at_1(Tensor::zeros({0, 2}), Tensor::zeros({0, 2})), ShapeError);
}

}  // namespace
}  // namespace hearth::train::target_metrics_test
