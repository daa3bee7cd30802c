// SPDX-License-Identifier: Apache-2.0
#include "train/task/target_tasks.h"

#include <cmath>

#include "ops/ops.h"
#include "train/model/trained_model.h"
#include "train/predict/answer.h"

namespace hearth::train {
namespace {

/// [N, ...] as [N, T].
Tensor as_rows(const Tensor& x) { return reshape(x, {x.dim(0), -1}); }

class RegressionMetrics : public Metrics {
 public:
  explicit RegressionMetrics(const std::string& target) : target_(target) {}
  void add(const Tensor& outputs, const data::Batch& batch) override {
    errors_.add(as_rows(outputs), as_rows(batch[target_]));
  }
  bool is_reducible() const override { return true; }
  void reduce(Collective& group) override { errors_.reduce(group); }
  void report(Json& record) const override {
    record.set("mse", errors_.mse()).set("mae", errors_.mae()).set("r2", errors_.r2());
  }

 private:
  const std::string& target_;
  RegressionErrors errors_;
};

class MultiLabelMetrics : public Metrics {
 public:
  MultiLabelMetrics(const std::string& target, std::int64_t labels, double threshold)
      : target_(target), counts_(labels, std::log(threshold / (1 - threshold))) {}
  void add(const Tensor& outputs, const data::Batch& batch) override {
    counts_.add(as_rows(outputs), as_rows(batch[target_]));
  }
  bool is_reducible() const override { return true; }
  void reduce(Collective& group) override { counts_.reduce(group); }
  void report(Json& record) const override {
    const ClassCounts all = counts_.all();
    record.set("precision", counts_.mean_precision())
        .set("recall", counts_.mean_recall())
        .set("f1", counts_.mean_f1())
        .set("micro_precision", all.precision())
        .set("micro_recall", all.recall())
        .set("micro_f1", all.f1())
        .set("exact_match", counts_.exact())
        .set("map", counts_.mean_average_precision());
  }

 private:
  const std::string& target_;
  MultiLabelCounts counts_;
};

template <class T>
void describe_target(Fields<T>& f) {
  f.text("inputs", &TargetOptions::inputs, {},
         "Tensors of a sample that the model takes, in order; empty: all but the target, as the sample has them.");
  f.text("target", &TargetOptions::target, "The tensor of a sample that the outputs are compared with.");
}

}  // namespace

void describe(Fields<RegressionOptions>& f) { describe_target(f); }
void describe(Fields<MultiLabelOptions>& f) {
  describe_target(f);
  f.number("threshold", &MultiLabelOptions::threshold, {.above = 0, .below = 1},
           "Probability above which a label is predicted, in metrics.");
}

TargetTask::TargetTask(const char* name, const data::DataSplits& data, const TargetOptions& options)
    : name_(name), inputs_(name, data, options.inputs, options.target), target_(options.target) {}

std::int64_t TargetTask::targets() const { return inputs_.first()[target_].size(); }

void TargetTask::prepare(const TrainedModel&, const ChosenComponents& chosen) { inputs_.prepare(chosen); }

InputPieces TargetTask::outside_inputs(const TrainedModel& trained, const OutsideSamples& samples) const {
  if (auto pieces = inputs_.outside(inputs_of_batch(trained), samples)) return *std::move(pieces);
  refuse_samples();
}

const PredictForm& TargetTask::form() const { return inputs_.is_table() ? rows_form() : files_form(); }

models::InputInfo TargetTask::input_info() const {
  models::InputInfo info = inputs_.info();
  info.classes = targets();
  return info;
}

Tensor TargetTask::loss(const TrainedModel& trained, const data::Batch& batch, const Measured& measured) const {
  const Tensor outputs = (*trained.model)(inputs(trained, batch));
  const Tensor& target = batch[target_];
  // As many rows, or a model with one output would be compared with every row.
  HEARTH_CHECK(ShapeError, outputs.rank() >= 1 && outputs.dim(0) == target.dim(0) && outputs.size() == target.size(),
               name_, ": outputs ", hearth::describe(outputs), " for targets ", hearth::describe(target),
               "; give the model as many outputs as a sample has targets");
  const Tensor x = as_rows(upcast(outputs));
  const Tensor loss = trained.loss(x, reshape(target.to(x.dtype()), x.shape()));
  if (measured.metrics != nullptr) measured.metrics->add(outputs, batch);
  return loss;
}

void TargetTask::check(const Loss& loss) const {
  HEARTH_CHECK(ConfigError, loss.labels != LabelKind::classes, "/loss/type: ", name_,
               " has targets that are no classes; use mse, l1, huber or bce_with_logits");
}

RegressionTask::RegressionTask(const data::DataSplits& data, const RegressionOptions& options)
    : TargetTask("regression", data, options) {
  const Tensor& target = inputs_.first()[target_];
  HEARTH_CHECK(ConfigError, is_floating(target.dtype()), "/task/type: regression is of floating targets; \"", target_,
               "\" of a batch is ", hearth::describe(target));
}

std::unique_ptr<Metrics> RegressionTask::metrics() const { return std::make_unique<RegressionMetrics>(target_); }

std::string RegressionTask::describe() const {
  return join_text("samples, ", targets(), targets() == 1 ? " target" : " targets", ", input ", inputs_.describe());
}

MultiLabelTask::MultiLabelTask(const data::DataSplits& data, const MultiLabelOptions& options)
    : TargetTask("multi_label", data, options), threshold_(options.threshold) {
  const Tensor& target = inputs_.first()[target_];
  HEARTH_CHECK(ConfigError,
               is_floating(target.dtype()) || target.dtype() == DType::u8 || target.dtype() == DType::boolean,
               "/task/type: multi_label is of targets that are 1 or 0 for each label, floating, u8 or bool; \"",
               target_, "\" of a batch is ", hearth::describe(target));
  HEARTH_CHECK(ConfigError, data.train->classes() == 0 || data.train->classes() == targets(),
               "/task/type: multi_label: ", data.train->classes(), " class names for ", targets(), " labels");
}

std::unique_ptr<Metrics> MultiLabelTask::metrics() const {
  return std::make_unique<MultiLabelMetrics>(target_, targets(), threshold_);
}

std::string MultiLabelTask::describe() const {
  return join_text("samples, ", targets(), " labels, input ", inputs_.describe());
}

}  // namespace hearth::train
