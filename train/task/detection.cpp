// SPDX-License-Identifier: Apache-2.0
#include "train/task/detection.h"

#include <utility>

#include "data/boxes/box_dataset.h"
#include "ops/ops.h"
#include "train/detection/coco_evaluation.h"
#include "train/model/trained_model.h"

namespace hearth::train {
namespace {

/// Bits of "box_flags".
constexpr double crowd_flag = 1, ignored_flag = 2;

/// The boxes of a batch as a model learns them: those of crowds and those to be ignored are no targets.
models::TrueBoxes true_boxes(const data::Batch& batch) {
  return {{batch["boxes"], batch["box_counts"], greater(batch["box_flags"], 0.0)}, batch["classes"]};
}

/// Boxes [n, 4] of an input, in pixels of the image that `map` (sx, sy, tx, ty) brought there.
Tensor in_image(const Tensor& boxes, const double* map) {
  std::vector<double> values = boxes.to_doubles();
  for (std::size_t i = 0; i < values.size(); i += 4) {
    for (std::size_t axis = 0; axis < 2; ++axis) {
      double low = (values[i + axis] - map[2 + axis]) / map[axis],
             high = (values[i + axis + 2] - map[2 + axis]) / map[axis];
      if (map[axis] < 0) std::swap(low, high);
      values[i + axis] = low, values[i + axis + 2] = high;
    }
  }
  return Tensor::of(boxes.shape(), values);
}

class DetectionMetrics : public Metrics {
 public:
  DetectionMetrics(models::Detector& detector, const models::DetectionOptions& options,
                   const std::vector<std::string>& names)
      : detector_(detector), options_(options), names_(names), evaluation_(static_cast<std::int64_t>(names.size())) {}

  void add(const Tensor& outputs, const data::Batch& given) override {
    const Tensor& images = given["images"];
    const std::vector<models::Detections> all =
        detector_.detections(outputs.detach(), images.dim(1), images.dim(2), options_);
    const data::Batch batch = given.to(Device{});
    const std::int64_t* const counts = batch["box_counts"].data<const std::int64_t>();
    const double* const maps = batch["image_maps"].data<const double>();
    std::int64_t begin = 0;
    for (std::size_t i = 0; i < all.size(); ++i) {
      const std::int64_t end = begin + counts[i];
      const auto of_image = [&](const char* name) { return slice(batch[name], 0, begin, end); };
      const auto has_flag = [&](double flag) {
        std::vector<std::int64_t> values;
        for (const double flags : of_image("box_flags").to_doubles())
          values.push_back(static_cast<std::int64_t>(flags / flag) % 2);
        return Tensor::of<std::int64_t>({end - begin}, values);
      };
      evaluation_.add(batch.samples[i], {in_image(all[i].boxes, maps + 4 * i), all[i].scores, all[i].classes},
                      {in_image(of_image("boxes"), maps + 4 * i),
                       of_image("classes"),
                       {},
                       has_flag(crowd_flag),
                       has_flag(ignored_flag)});
      begin = end;
    }
  }
  bool is_reducible() const override { return true; }
  void reduce(Collective& group) override { evaluation_.reduce(group); }
  void report(Json& record) const override {
    const CocoResult result = evaluation_.result();
    record.set("ap", result.ap)
        .set("ap_50", result.ap_50)
        .set("ap_75", result.ap_75)
        .set("ap_small", result.ap_small)
        .set("ap_medium", result.ap_medium)
        .set("ap_large", result.ap_large)
        .set("ar_1", result.ar_1)
        .set("ar_10", result.ar_10)
        .set("ar_100", result.ar_100)
        .set("ar_small", result.ar_small)
        .set("ar_medium", result.ar_medium)
        .set("ar_large", result.ar_large);
    Json classes = Json::object();
    for (std::size_t label = 0; label < names_.size(); ++label) classes.set(names_[label], result.ap_by_class[label]);
    record.set("ap_by_class", std::move(classes));
  }

 private:
  models::Detector& detector_;
  models::DetectionOptions options_;
  const std::vector<std::string>& names_;
  CocoEvaluation evaluation_;
};

}  // namespace

DetectionTask::DetectionTask(const data::DataSplits& data, const models::DetectionOptions& options)
    : data_(data), options_(options) {
  HEARTH_CHECK(ConfigError, data.train->boxes() != nullptr,
               "/task/type: detection is of images with boxes (data types \"coco\", \"yolo\" and \"voc\"), which the "
               "data are not; name another task");
}

models::InputInfo DetectionTask::input_info() const {
  const data::ImageShape shape = data_.input_shape();
  return {.height = shape.height,
          .width = shape.width,
          .channels = shape.channels,
          .classes = data_.classes(),
          .labelled = true};
}

void DetectionTask::prepare(const TrainedModel& trained, const ChosenComponents&) {
  detector_ = dynamic_cast<models::Detector*>(trained.model.get());
  HEARTH_CHECK(ConfigError, detector_ != nullptr, "/model/type: ", trained.model->type_name(),
               " is no detector, which the task needs; name \"fcos\"");
  pixels_.prepare(trained, data_);
}

Tensor DetectionTask::loss(const TrainedModel& trained, const data::Batch& batch, const Measured& measured) const {
  const Tensor outputs = (*trained.model)(inputs(trained, batch));
  const Tensor& images = batch["images"];
  if (measured.metrics != nullptr) measured.metrics->add(outputs, batch);
  return detector_->loss(outputs, images.dim(1), images.dim(2), true_boxes(batch));
}

void DetectionTask::check(const Loss& loss) const {
  HEARTH_CHECK(ConfigError, loss.is_of_model, "/loss/type: a detector has its loss; leave \"loss\" out");
}

std::unique_ptr<Metrics> DetectionTask::metrics() const {
  HEARTH_CHECK(UsageError, detector_ != nullptr, "detection: metrics are asked for before prepare()");
  return std::make_unique<DetectionMetrics>(*detector_, options_, data_.train->class_names());
}

std::string DetectionTask::describe() const {
  const data::ImageShape shape = data_.input_shape();
  return join_text("images with boxes, ", data_.classes(), " classes, input ", shape.height, "x", shape.width, "x",
                   shape.channels);
}

}  // namespace hearth::train
