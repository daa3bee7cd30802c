// SPDX-License-Identifier: Apache-2.0
#include "train/task/task.h"

#include "autograd/grad_mode.h"
#include "core/run_on.h"
#include "ops/ops.h"
#include "train/model/trained_model.h"
#include "train/predict/answer.h"
#include "train/predict/outside_inputs.h"
#include "train/task/report_sections.h"

namespace hearth::train {
namespace {

void count_correct_into(const Tensor& correct, const Loss& rule, const Tensor& outputs, const Tensor& labels) {
  const NoGrad no_grad;
  const Tensor classes = is_floating(labels.dtype()) ? argmax(labels, -1) : labels;
  run_on(outputs.device(), [&](auto& stream) {
    kernels::count_correct(stream, outputs.detach().contiguous(), classes, 1,
                           rule.ignored_label.value_or(data::ignored_label), correct);
  });
}

}  // namespace

Tensor Task::loss(const TrainedModel& trained, const data::Batch& batch, const Measured& measured) const {
  const nn::Inputs given = inputs(trained, batch);
  const Tensor& labels = batch["labels"];
  if (trained.chunked != nullptr) {
    const Tensor x = trained.chunked->features(given);
    const auto [weight, bias] = trained.chunked->head();
    return trained.loss.of_head(x, weight, bias, labels, measured.correct);
  }
  const Tensor outputs = (*trained.model)(given);
  const Tensor loss = trained.loss(outputs, labels);
  if (measured.correct.defined()) count_correct_into(measured.correct, trained.loss, outputs, labels);
  if (measured.metrics != nullptr) measured.metrics->add(outputs, batch);
  return loss;
}

void Task::check(const Loss& loss) const {
  HEARTH_CHECK(ConfigError, !loss.is_of_model,
               "/loss/type: \"model\" is of detectors; leave loss out, or name one of outputs and labels");
  const std::int64_t classes = input_info().classes;
  HEARTH_CHECK(ConfigError, loss.class_weights == 0 || loss.class_weights == classes,
               "/loss/class_weights: ", loss.class_weights, " numbers for ", classes, " classes; give one a class");
}

InputPieces Task::outside_inputs(const TrainedModel& trained, const OutsideSamples& samples) const {
  if (auto pieces = batch_inputs(inputs_of_batch(trained), samples)) return *std::move(pieces);
  refuse_samples();
}

InputsOfBatch Task::inputs_of_batch(const TrainedModel& trained) const {
  return [this, &trained](const data::Batch& batch) { return inputs(trained, batch); };
}

void Task::refuse_samples() const {
  const char* const function = form().predictor_function;
  throw UsageError(join_text("predictor: the run was trained on ", form().trained_on, "; ",
                             function != nullptr ? join_text("use ", function) : "no Predictor takes samples of it"));
}

const PredictForm& Task::form() const { return files_form(); }

Json Task::predict(const TrainedModel&, const std::string& path, const std::string&) const {
  throw UsageError(
      join_text("predict: ", path, ": the run's task does not predict files; it has to override Task::predict"));
}

void Task::report(const TrainedModel&, const data::DatasetPointer&, const VisitBatches&, ReportSections&) const {}

std::vector<Figure> Task::samples(const TrainedModel&, const data::DatasetPointer&) const { return {}; }

}  // namespace hearth::train
