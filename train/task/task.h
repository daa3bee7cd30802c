// SPDX-License-Identifier: Apache-2.0
// A task: what a batch means to a run. It says which tensors the model takes and how the loss follows from its outputs,
// what throughput counts, by what evaluations are compared, and what is reported of them. The trainer, the step,
// capture and the memory estimate know no other kind of problem than the task.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "core/config/config.h"
#include "core/io/json_text.h"
#include "data/splits.h"
#include "models/nn/module.h"
#include "models/registry.h"
#include "train/model/loss.h"
#include "train/model/metrics.h"
#include "train/predict/outside_samples.h"

namespace hearth::train {

class ReportSections;
class TrainedModel;
struct Figure;
struct Meter;
struct PredictForm;
struct TextMetricOptions;

/// What a loss tells on the way.
struct Measured {
  Tensor correct{};            ///< i64 [1], to which the number of correct predictions is added; or undefined
  Metrics* metrics = nullptr;  ///< takes the batch in; null in training
};

/// The components of a run's configuration that a task may look at; they outlive it.
struct ChosenComponents {
  const models::Models::Component& model;
  const data::Datasets::Component& data;
};

/// Calls a function with batches of a split, in order and where the model computes; the model is in evaluation mode.
using VisitBatches = std::function<void(const std::function<void(const data::Batch&)>& use)>;

class HEARTH_API Task {
 public:
  virtual ~Task() = default;

  /// What a model is told of the data when it is made.
  virtual models::InputInfo input_info() const { return {}; }
  /// Called once the model lies on the run's device: brings there what inputs() needs besides the batch. ConfigError
  /// for a model or data that do not fit the task. Here: nothing.
  virtual void prepare(const TrainedModel&, const ChosenComponents&) {}
  /// The tensors that the model takes, in order, of a batch that lies where the model does.
  virtual nn::Inputs inputs(const TrainedModel& trained, const data::Batch& batch) const = 0;
  /// The loss of a batch that lies where the model does, a scalar: the mean over what counts. Here: the run's loss of
  /// the model's outputs and the batch's "labels"; soft labels (mixup) are correct where the heaviest class is
  /// predicted.
  virtual Tensor loss(const TrainedModel& trained, const data::Batch& batch, const Measured& measured) const;

  /// Whether the loss of a batch is made up of those of its parts, as a mean over rows that know nothing of each other
  /// is. Where it is not, a batch stays whole: several processes take one or more each (`train.accumulate`).
  virtual bool rows_are_independent() const { return true; }
  /// What the run's throughput counts: "images", "tokens".
  virtual const char* unit() const { return "samples"; }
  /// Evaluations are compared by their loss, else by their accuracy.
  virtual bool best_by_loss() const { return false; }
  /// Whether the loss counts correct predictions; where it does not, no accuracy is reported.
  virtual bool has_accuracy() const { return true; }
  /// ConfigError if the loss does not fit what the batches hold. Here: its class weights are one a class.
  virtual void check(const Loss& loss) const;
  /// What an evaluation measures beside loss and accuracy; null for nothing.
  virtual std::unique_ptr<Metrics> metrics() const { return nullptr; }
  /// Adds to a record what follows from the loss and accuracy of `meter`. `part`: the dataset of an evaluation of all
  /// its samples; null for a stretch of training.
  virtual void add_metrics(Json&, const Loss&, const Meter&, const data::Dataset*) const {}
  /// Makes inputs of the model of samples from outside of the run's data; what they refer to outlives the result.
  /// UsageError, by form(), for samples that the task does not take. Here: of batches, by inputs().
  virtual InputPieces outside_inputs(const TrainedModel& trained, const OutsideSamples& samples) const;
  /// How `hearth predict` and a Predictor are used with the run (train/predict/answer.h). Here: a line for each file,
  /// by predict(), and predictions of batches.
  virtual const PredictForm& form() const;
  /// Prediction for a file, as a line of `hearth predict`; may write files into `folder`. The model is in
  /// evaluation mode. UsageError unless the task overrides it.
  virtual Json predict(const TrainedModel& trained, const std::string& path, const std::string& folder) const;
  /// Whether the model writes sequences for a split that can be compared with what they should be.
  virtual bool writes_comparable_text() const { return false; }
  /// Adds to a record how the sequences that the model writes for a split compare with what they should be. Here:
  /// nothing.
  virtual void add_text_metrics(Json&, const TrainedModel&, const data::DatasetPointer&,
                                const TextMetricOptions&) const {}
  /// Adds to the run's report what the model makes of a split, the batches that `visit` gives: mistakes, masks, ...
  /// (train/task/report_sections.h). The averaged weights are in use if there are any. Here: nothing.
  virtual void report(const TrainedModel&, const data::DatasetPointer& part, const VisitBatches& visit,
                      ReportSections&) const;
  /// What the model generates, shown in the report for each evaluation of the split while the run goes on. A few small
  /// figures: they are kept in metrics.jsonl. A function of the weights alone; the model is in evaluation mode. Here:
  /// nothing.
  virtual std::vector<Figure> samples(const TrainedModel&, const data::DatasetPointer& part) const;
  /// What the training samples are, for the plan of a run: "images, 10 classes, input 8x8x1".
  virtual std::string describe() const { return unit(); }

  /// Shape of a tensor of a batch where its rows are as long as they can be; `shape` is that of one such tensor.
  virtual Shape longest(const Shape& shape) const { return shape; }
  /// Rows of a small batch for which ops take the memory that they take for any larger one.
  virtual std::int64_t rows_to_measure() const { return 4; }

 protected:
  /// inputs() of a model.
  InputsOfBatch inputs_of_batch(const TrainedModel& trained) const;
  /// UsageError that names what the run was trained on and the function of a Predictor that takes it.
  [[noreturn]] void refuse_samples() const;
};

}  // namespace hearth::train
