// SPDX-License-Identifier: Apache-2.0
#include "train/task/segmentation.h"

#include "data/sample_dataset.h"
#include "ops/ops.h"

namespace hearth::train {
namespace {

class SegmentationMetrics : public Metrics {
 public:
  explicit SegmentationMetrics(const std::vector<std::string>& names)
      : names_(names), matrix_(static_cast<std::int64_t>(names.size())) {}
  void add(const Tensor& outputs, const data::Batch& batch) override {
    matrix_.add(argmax(outputs, -1), batch["labels"], data::ignored_label);
  }
  void report(Json& record) const override {
    Json classes = Json::object();
    for (std::size_t label = 0; label < names_.size(); ++label)
      classes.set(names_[label], matrix_.iou(static_cast<std::int64_t>(label)));
    record.set("mean_iou", matrix_.mean_iou()).set("iou", std::move(classes));
  }

 private:
  const std::vector<std::string>& names_;
  ConfusionMatrix matrix_;
};

}  // namespace

SegmentationTask::SegmentationTask(const data::DataSplits& data) : data_(data) {
  const auto* const samples = dynamic_cast<const data::SampleDataset*>(data.train.get());
  HEARTH_CHECK(ConfigError, samples != nullptr && samples->size() > 0 && samples->classes() > 0,
               "/task/type: segmentation is of a data::SampleDataset with class_names(), which the data are not; name "
               "another task");
  Random random(0, 0);
  const data::Batch first = samples->collate({samples->read(0, random)});
  const Tensor &images = first["images"], &labels = first["labels"];
  HEARTH_CHECK(
      ConfigError, images.rank() == 4 && labels.rank() == 3 && labels.dtype() == DType::i64,
      "/task/type: segmentation is of samples with \"images\" [H, W, C] and \"labels\", i64 [H, W]; a batch of "
      "the data has ",
      hearth::describe(images), " and ", hearth::describe(labels));
  info_ = {.height = images.dim(1), .width = images.dim(2), .channels = images.dim(3), .classes = samples->classes()};
}

nn::Inputs SegmentationTask::inputs(const Session&, const data::Batch& batch) const { return {batch["images"]}; }

std::unique_ptr<Metrics> SegmentationTask::metrics() const {
  return std::make_unique<SegmentationMetrics>(data_.train->class_names());
}

std::string SegmentationTask::describe() const {
  return join_text("images, ", info_.classes, " classes of pixels, input ", info_.height, "x", info_.width, "x",
                   info_.channels);
}

}  // namespace hearth::train
