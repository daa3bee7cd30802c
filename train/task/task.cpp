// SPDX-License-Identifier: Apache-2.0
#include "train/task/task.h"

#include <algorithm>

#include "autograd/grad_mode.h"
#include "core/run_on.h"
#include "ops/ops.h"
#include "train/session.h"
#include "train/task/class_report.h"
#include "train/task/report_sections.h"
#include "train/task/segmentation.h"
#include "train/task/text_tasks.h"

namespace hearth::train {
namespace {

// Where no label is ignored, none has this.
constexpr std::int64_t no_class = -100;

/// Images with a class each.
class ClassificationTask : public Task {
 public:
  explicit ClassificationTask(const data::DataSplits& data) : data_(data) {
    HEARTH_CHECK(ConfigError, data.train->images() != nullptr,
                 "/task/type: classification is of images, which the data are not; leave it out, or name another task");
  }
  models::InputInfo input_info() const override {
    const data::ImageShape shape = data_.input_shape();
    return {.height = shape.height,
            .width = shape.width,
            .channels = shape.channels,
            .classes = data_.classes(),
            .labelled = true};
  }
  nn::Inputs inputs(const Session& session, const data::Batch& batch) const override {
    return {session.images_of(batch)};
  }
  const char* unit() const override { return "images"; }
  std::string describe() const override {
    const data::ImageShape input = data_.input_shape();
    return join_text("images, ", data_.classes(), " classes, input ", input.height, "x", input.width, "x",
                     input.channels);
  }
  std::int64_t rows_to_measure() const override {
    constexpr std::int64_t enough_pixels = 8192, most = 16;
    const data::ImageShape shape = data_.input_shape();
    const std::int64_t pixels = std::max<std::int64_t>(1, shape.height * shape.width);
    return std::clamp<std::int64_t>(enough_pixels / pixels, 2, most);
  }
  void report(Session& session, const data::DatasetPointer& part, std::int64_t most,
              ReportSections& sections) const override {
    report_classes(session, part, most, sections, [images = part->images()](std::int64_t sample) {
      const std::string name = images->sample_name(sample);
      return Figure{.caption = name.empty() ? join_text("sample ", sample) : name,
                    .images = {images->get(sample).image}};
    });
  }

 private:
  const data::DataSplits& data_;
};

std::unique_ptr<Task> task_of(const data::DataSplits& data) {
  const data::TokenDataset* const sequences = data.train->tokens();
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
    kernels::count_correct(stream, outputs.detach().contiguous(), classes, 1, rule.ignored_label.value_or(no_class),
                           correct);
  });
}

template <class T>
std::unique_ptr<Task> make_task(const NoOptions&, const data::DataSplits& data) {
  return std::make_unique<T>(data);
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
    r.add<NoOptions>("classification", "A class for each image.", make_task<ClassificationTask>);
    r.add<NoOptions>("segmentation", "A class for each pixel.", make_task<SegmentationTask>);
    r.add<NoOptions>("text_classification", "A class for each sequence.", make_task<TextClassificationTask>);
    r.add<NoOptions>("language_model", "The next token, or the masked tokens, of a token stream.",
                     make_task<LanguageModelTask>);
    r.add<NoOptions>("translation", "A sequence of tokens for each source sequence.", make_task<TranslationTask>);
  });
  return registry;
}

}  // namespace hearth::train
