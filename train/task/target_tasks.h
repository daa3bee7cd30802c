// SPDX-License-Identifier: Apache-2.0
// Tasks whose targets are no classes: numbers, and labels of which a sample has several.
#pragma once

#include <string>
#include <vector>

#include "train/task/inputs/sample_inputs.h"

namespace hearth::train {

struct TargetOptions {
  std::vector<std::string> inputs{};
  std::string target = "labels";
};
struct RegressionOptions : TargetOptions {};
struct MultiLabelOptions : TargetOptions {
  double threshold = 0.5;
};
HEARTH_API void describe(Fields<RegressionOptions>& fields);
HEARTH_API void describe(Fields<MultiLabelOptions>& fields);

/// What both have in common: of a data::SampleDataset, the loss of the model's outputs, [N, T], and a target of as many
/// elements a sample.
class HEARTH_API TargetTask : public Task {
 public:
  models::InputInfo input_info() const override;
  /// ConfigError for a model of images where samples have other inputs.
  void prepare(const TrainedModel& trained, const ChosenComponents& chosen) override;
  nn::Inputs inputs(const TrainedModel&, const data::Batch& batch) const override { return inputs_.of(batch); }
  Tensor loss(const TrainedModel& trained, const data::Batch& batch, const Measured& measured) const override;
  bool best_by_loss() const override { return true; }
  bool has_accuracy() const override { return false; }
  void check(const Loss& loss) const override;
  InputPieces outside_inputs(const TrainedModel& trained, const OutsideSamples& samples) const override;
  const PredictForm& form() const override;

 protected:
  TargetTask(const char* name, const data::DataSplits& data, const TargetOptions& options);
  /// Of one sample.
  std::int64_t targets() const;

  const char* name_;
  SampleInputs inputs_;
  std::string target_;
};

/// Numbers. Evaluations measure `mse`, `mae` and `r2`.
class HEARTH_API RegressionTask : public TargetTask {
 public:
  /// ConfigError unless samples have a floating tensor of the target's name.
  RegressionTask(const data::DataSplits& data, const RegressionOptions& options);
  std::unique_ptr<Metrics> metrics() const override;
  std::string describe() const override;
};

/// Labels of which a sample has several or none: the target is 1 where it has one, else 0. Evaluations measure
/// `precision`, `recall` and `f1` as means over the labels, the same of all labels together (`micro_f1`, ...),
/// how often all labels of a sample are right, `exact_match`, and the mean average precision, `map`.
class HEARTH_API MultiLabelTask : public TargetTask {
 public:
  /// ConfigError unless samples have a tensor of the target's name, floating, u8 or bool; and unless class_names(), if
  /// there are any, are as many as its elements.
  MultiLabelTask(const data::DataSplits& data, const MultiLabelOptions& options);
  std::unique_ptr<Metrics> metrics() const override;
  std::string describe() const override;

 private:
  double threshold_;
};

}  // namespace hearth::train
