// SPDX-License-Identifier: Apache-2.0
#include "train/task/registry.h"

#include "data/table/table.h"
#include "data/text/token_set.h"
#include "train/task/classification.h"
#include "train/task/contrastive.h"
#include "train/task/detection.h"
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

template <class T>
std::unique_ptr<Task> make_task(const NoOptions&, const data::DataSplits& data) {
  return std::make_unique<T>(data);
}

template <class T, class Options>
std::unique_ptr<Task> make_task_with(const Options& options, const data::DataSplits& data) {
  return std::make_unique<T>(data, options);
}

}  // namespace

const char* default_loss(const std::string& task) {
  if (task == "regression") return "mse";
  if (task == "detection") return "model";
  return task == "multi_label" ? "bce_with_logits" : "cross_entropy";
}

TaskRegistry& tasks() {
  static TaskRegistry registry("task", "What a batch means: inputs, loss and metrics.", [](TaskRegistry& r) {
    r.add<NoOptions>("auto", "The task that the data tells.",
                     [](const NoOptions&, const data::DataSplits& data) { return task_of(data); });
    r.add<ClassMetricOptions>("classification", "A class for each image, or sample of a custom dataset.",
                              make_task_with<ClassificationTask, ClassMetricOptions>);
    r.add<models::DetectionOptions>("detection", "Boxes on images, each of a class.",
                                    make_task_with<DetectionTask, models::DetectionOptions>);
    r.add<NoOptions>("segmentation", "A class for each pixel.", make_task<SegmentationTask>);
    r.add<RegressionOptions>("regression", "Numbers for each sample of a custom dataset.",
                             make_task_with<RegressionTask, RegressionOptions>);
    r.add<MultiLabelOptions>("multi_label", "Any number of labels for each sample of a custom dataset.",
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
