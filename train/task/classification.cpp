// SPDX-License-Identifier: Apache-2.0
#include "train/task/classification.h"

#include <algorithm>
#include <utility>

#include "data/images/image_dataset.h"
#include "data/table/table.h"
#include "ops/ops.h"
#include "train/model/trained_model.h"
#include "train/predict/answer.h"
#include "train/predict/outside_inputs.h"
#include "train/task/report/class_report.h"
#include "train/task/report_sections.h"

namespace hearth::train {
namespace {

class ClassMetrics : public Metrics {
 public:
  ClassMetrics(const ClassMetricOptions& options, const std::vector<std::string>& names)
      : options_(options), names_(names), matrix_(static_cast<std::int64_t>(names.size())) {}
  void add(const Tensor& outputs, const data::Batch& batch) override {
    const Tensor& given = batch["labels"];
    const Tensor labels = is_floating(given.dtype()) ? argmax(given, -1) : given;
    if (options_.top_k) {
      correct_ += count_correct(outputs, labels, *options_.top_k, data::ignored_label).to(Device{}).item();
      samples_ += batch.count();
    }
    if (options_.by_class) matrix_.add(argmax(outputs, -1), labels, data::ignored_label);
  }
  bool is_reducible() const override { return true; }
  void reduce(Collective& group) override {
    const Tensor counts = Tensor::of<double>({2}, {correct_, static_cast<double>(samples_)});
    group.all_reduce(counts).wait();
    correct_ = counts.data<const double>()[0];
    samples_ = static_cast<std::int64_t>(counts.data<const double>()[1]);
    matrix_.reduce(group);
  }
  void report(Json& record) const override {
    if (options_.top_k) record.set("top_k_accuracy", samples_ > 0 ? correct_ / static_cast<double>(samples_) : 0.0);
    if (!options_.by_class) return;
    Json classes = Json::object();
    for (std::size_t label = 0; label < names_.size(); ++label)
      classes.set(names_[label], matrix_.f1(static_cast<std::int64_t>(label)));
    record.set("precision", matrix_.mean_precision())
        .set("recall", matrix_.mean_recall())
        .set("f1", matrix_.mean_f1())
        .set("f1_by_class", std::move(classes));
  }

 private:
  ClassMetricOptions options_;
  const std::vector<std::string>& names_;
  ConfusionMatrix matrix_;
  double correct_ = 0;
  std::int64_t samples_ = 0;
};

}  // namespace

void describe(Fields<ClassMetricOptions>& f) {
  f.integer("top_k", &ClassMetricOptions::top_k, {.min = 1, .max = 65536},
            "Evaluations measure how often the label is among the k largest outputs, `top_k_accuracy`. null: not.");
  f.boolean("by_class", &ClassMetricOptions::by_class,
            "Evaluations measure precision, recall and F1: means over the classes that occur, and the F1 of each.");
}

std::unique_ptr<Metrics> class_metrics(const ClassMetricOptions& options, const std::vector<std::string>& names) {
  if (!options.top_k && !options.by_class) return nullptr;
  return std::make_unique<ClassMetrics>(options, names);
}

void require_several_classes(const data::DataSplits& data) {
  HEARTH_CHECK(DataError, data.classes() != 1, data.train->source(), ": has one class alone, \"",
               data.train->class_names().empty() ? "0" : data.train->class_names().front(),
               "\", of which there is nothing to learn; give samples of another");
}

ClassificationTask::ClassificationTask(const data::DataSplits& data, const ClassMetricOptions& options)
    : data_(data), options_(options) {
  HEARTH_CHECK(ConfigError, !options.top_k || *options.top_k <= data.classes(), "/task/top_k: ", *options.top_k, " of ",
               data.classes(), " classes");
  require_several_classes(data);
  if (data.train->images() != nullptr) return;
  const auto* const samples = dynamic_cast<const data::SampleDataset*>(data.train.get());
  HEARTH_CHECK(ConfigError,
               samples == nullptr || samples->classes() > 0 ||
                   dynamic_cast<const data::TableDataset*>(data.train.get()) == nullptr,
               "/task/type: classification, but the target of the table is numbers; say that they are classes by "
               "data.target_type: \"category\"");
  HEARTH_CHECK(
      ConfigError, samples != nullptr && samples->classes() > 0,
      "/task/type: classification is of images, or of a data::SampleDataset with class_names(), which the data are "
      "not; leave it out, or name another task");
  samples_.emplace("classification", data, std::vector<std::string>{}, "labels");
  const Tensor& labels = samples_->first()["labels"];
  HEARTH_CHECK(ConfigError, labels.rank() == 1 && labels.dtype() == DType::i64,
               "/task/type: classification is of samples with \"labels\", i64 []; a batch of the data has ",
               hearth::describe(labels));
}

models::InputInfo ClassificationTask::input_info() const {
  if (samples_) {
    models::InputInfo info = samples_->info();
    info.classes = data_.classes();
    info.labelled = true;
    return info;
  }
  const data::ImageShape shape = data_.input_shape();
  return {.height = shape.height,
          .width = shape.width,
          .channels = shape.channels,
          .classes = data_.classes(),
          .labelled = true};
}

void ClassificationTask::prepare(const TrainedModel& trained, const ChosenComponents& chosen) {
  if (samples_) return samples_->prepare(chosen);
  files_ = data::folder_options(chosen.data);
  pixels_.prepare(trained, data_);
}

nn::Inputs ClassificationTask::inputs(const TrainedModel& trained, const data::Batch& batch) const {
  if (samples_) return samples_->of(batch);
  return pixels_.of(trained, batch);
}

InputPieces ClassificationTask::outside_inputs(const TrainedModel& trained, const OutsideSamples& samples) const {
  auto pieces = samples_ ? samples_->outside(inputs_of_batch(trained), samples) : image_inputs(data_, files_, samples);
  if (!pieces) refuse_samples();
  return *std::move(pieces);
}

const PredictForm& ClassificationTask::form() const {
  if (!samples_) return images_form();
  return samples_->is_table() ? rows_form() : files_form();
}

std::string ClassificationTask::describe() const {
  if (samples_) return join_text("samples, ", data_.classes(), " classes, input ", samples_->describe());
  const data::ImageShape input = data_.input_shape();
  return join_text("images, ", data_.classes(), " classes, input ", input.height, "x", input.width, "x",
                   input.channels);
}

std::int64_t ClassificationTask::rows_to_measure() const {
  if (samples_) return Task::rows_to_measure();
  constexpr std::int64_t enough_pixels = 8192, most = 16;
  const data::ImageShape shape = data_.input_shape();
  const std::int64_t pixels = std::max<std::int64_t>(1, shape.height * shape.width);
  return std::clamp<std::int64_t>(enough_pixels / pixels, 2, most);
}

void ClassificationTask::report(const TrainedModel& trained, const data::DatasetPointer& part,
                                const VisitBatches& visit, ReportSections& sections) const {
  report_classes(*this, trained, part, visit, sections, [images = part->images()](std::int64_t sample) {
    Figure figure{.caption = join_text("sample ", sample)};
    if (images == nullptr) return figure;
    if (const std::string name = images->sample_name(sample); !name.empty()) figure.caption = name;
    figure.images = {images->get(sample).image};
    return figure;
  });
}

}  // namespace hearth::train
