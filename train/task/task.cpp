// SPDX-License-Identifier: Apache-2.0
#include "train/task/task.h"

#include "autograd/grad_mode.h"
#include "core/run_on.h"
#include "data/table/table.h"
#include "ops/ops.h"
#include "train/session.h"
#include "train/task/classification.h"
#include "train/task/contrastive.h"
#include "train/task/report_sections.h"
#include "train/task/segmentation.h"
#include "train/task/target_tasks.h"
#include "train/task/text_tasks.h"

namespace hearth::train {
namespace {

std::unique_ptr<Task> task_of(const data::DataSplits& data) {
  const data::TokenDataset* const sequences = data.train->tokens();
  const auto* const table = dynamic_cast<const data::TableDataset*>(data.train.get());
  HEARTH_CHECK(ConfigError, table == nullptr || table->classes() > 0,
               "/task: the target of the table is numbers; name the task: {\"type\": \"regression\"}, or say that they "
               "are classes by data.target_type: \"category\"");
  if (table != nullptr) return std::make_unique<ClassificationTask>(data);
  HEARTH_CHECK(ConfigError, sequences != nullptr || data.train->images() != nullptr,
               "/task: the data tell none, being neither images nor sequences of tokens; name one: ",
               "{\"type\": ...}, as the program adds it to train::tasks()");
  if (sequences == nullptr) return std::make_unique<ClassificationTask>(data);
  if (sequences->labelled() != nullptr) return std::make_unique<TextClassificationTask>(data);
  if (sequences->pairs() != nullptr) return std::make_unique<TranslationTask>(data);
  return std::make_unique<LanguageModelTask>(data);
}

void count_correct_into(const Tensor& correct, const Loss& rule, const Tensor& outputs, const Tensor& labels) {
  const NoGrad no_grad;
  const Tensor classes = is_floating(labels.dtype()) ? argmax(labels, -1) : labels;
  run_on(outputs.device(), [&](auto& stream) {
    kernels::count_correct(stream, outputs.detach().contiguous(), classes, 1,
                           rule.ignored_label.value_or(data::ignored_label), correct);
  });
}

template <class T>
std::unique_ptr<Task> make_task(const NoOptions&, const data::DataSplits& data) {
  return std::make_unique<T>(data);
}

template <class T, class Options>
std::unique_ptr<Task> make_task_with(const Options& options, const data::DataSplits& data) {
  return std::make_unique<T>(data, options);
}

}  // namespace

Tensor Task::loss(Session& session, const data::Batch& batch, const Measured& measured) const {
  const nn::Inputs given = inputs(session, batch);
  const Tensor& labels = batch["labels"];
  if (session.chunked != nullptr) {
    const Tensor x = session.chunked->features(given);
    const auto [weight, bias] = session.chunked->head();
    return session.loss.of_head(x, weight, bias, labels, measured.correct);
  }
  const Tensor outputs = (*session.model)(given);
  const Tensor loss = session.loss(outputs, labels);
  if (measured.correct.defined()) count_correct_into(measured.correct, session.loss, outputs, labels);
  if (measured.metrics != nullptr) measured.metrics->add(outputs, batch);
  return loss;
}

void Task::check(const Loss& loss) const {
  const std::int64_t classes = input_info().classes;
  HEARTH_CHECK(ConfigError, loss.class_weights == 0 || loss.class_weights == classes,
               "/loss/class_weights: ", loss.class_weights, " numbers for ", classes, " classes; give one a class");
}

const char* default_loss(const std::string& task) {
  if (task == "regression") return "mse";
  return task == "multi_label" ? "bce_with_logits" : "cross_entropy";
}

Json Task::predict(Session&, const std::string& path, const std::string&) const {
  throw UsageError(
      join_text("predict: ", path, ": the run's task does not predict files; it has to override Task::predict"));
}

void Task::report(Session&, const data::DatasetPointer&, std::int64_t, ReportSections&) const {}

std::vector<Figure> Task::samples(Session&, const data::DatasetPointer&) const { return {}; }

TaskRegistry& tasks() {
  static TaskRegistry registry("task", "What a batch means: inputs, loss and metrics.", [](TaskRegistry& r) {
    r.add<NoOptions>("auto", "The task that the data tells.",
                     [](const NoOptions&, const data::DataSplits& data) { return task_of(data); });
    r.add<ClassMetricOptions>("classification", "A class for each image, or sample of a dataset of one's own.",
                              make_task_with<ClassificationTask, ClassMetricOptions>);
    r.add<NoOptions>("segmentation", "A class for each pixel.", make_task<SegmentationTask>);
    r.add<RegressionOptions>("regression", "Numbers for each sample of a dataset of one's own.",
                             make_task_with<RegressionTask, RegressionOptions>);
    r.add<MultiLabelOptions>("multi_label", "Labels of which a sample of a dataset of one's own has several or none.",
                             make_task_with<MultiLabelTask, MultiLabelOptions>);
    r.add<ContrastiveOptions>("contrastive",
                              "Embeddings in which the two inputs of a sample are closer than those of others.",
                              make_task_with<ContrastiveTask, ContrastiveOptions>);
    r.add<ClassMetricOptions>("text_classification", "A class for each sequence.",
                              make_task_with<TextClassificationTask, ClassMetricOptions>);
    r.add<NoOptions>("language_model", "The next token, or the masked tokens, of a token stream.",
                     make_task<LanguageModelTask>);
    r.add<NoOptions>("translation", "A sequence of tokens for each source sequence.", make_task<TranslationTask>);
  });
  return registry;
}

}  // namespace hearth::train
