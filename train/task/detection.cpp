// SPDX-License-Identifier: Apache-2.0
#include "train/task/detection.h"

#include <algorithm>
#include <filesystem>
#include <utility>

#include "autograd/grad_mode.h"
#include "data/boxes/box_dataset.h"
#include "data/boxes/draw_boxes.h"
#include "data/images/codecs/decode.h"
#include "data/loading/loader.h"
#include "ops/ops.h"
#include "train/detection/coco_evaluation.h"
#include "train/model/trained_model.h"
#include "train/task/report/detection_report.h"

namespace hearth::train {
namespace {

/// Bits of "box_flags".
constexpr double crowd_flag = 1, ignored_flag = 2;

/// The boxes of a batch as a model learns them: boxes of crowds and ignored boxes are no targets.
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

/// The same of detections, which may reach into the margins: without what lies there. `size` is height and width.
Tensor within_image(const Tensor& boxes, const double* map, const std::int64_t* size) {
  std::vector<double> values = in_image(boxes, map).to_doubles();
  for (std::size_t i = 0; i < values.size(); ++i)
    values[i] = std::clamp(values[i], 0.0, static_cast<double>(size[i % 2 == 0 ? 1 : 0]));
  return Tensor::of(boxes.shape(), values);
}

/// The boxes of each image of a batch, in its pixels.
void visit_boxes(models::Detector& detector, const models::DetectionOptions& options, const Tensor& outputs,
                 const data::Batch& on_device, const UseBoxes& use) {
  const Tensor& images = on_device["images"];
  const std::vector<models::Detections> all =
      detector.detections(outputs.detach(), images.dim(1), images.dim(2), options);
  const data::Batch batch = on_device.to(Device{});
  const std::int64_t* const counts = batch["box_counts"].data<const std::int64_t>();
  const double* const maps = batch["image_maps"].data<const double>();
  const std::int64_t* const sizes = batch["image_sizes"].data<const std::int64_t>();
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
    use(batch.samples[i], {within_image(all[i].boxes, maps + 4 * i, sizes + 2 * i), all[i].scores, all[i].classes},
        {in_image(of_image("boxes"), maps + 4 * i), of_image("classes"), of_image("box_areas"), has_flag(crowd_flag),
         has_flag(ignored_flag)});
    begin = end;
  }
}

class DetectionMetrics : public Metrics {
 public:
  /// `detector` is there by the first add().
  DetectionMetrics(models::Detector* const& detector, const models::DetectionOptions& options,
                   const std::vector<std::string>& names)
      : detector_(detector), options_(options), names_(names), evaluation_(static_cast<std::int64_t>(names.size())) {}

  void add(const Tensor& outputs, const data::Batch& batch) override {
    visit_boxes(*detector_, options_, outputs, batch,
                [&](std::int64_t sample, const Detections& detections, const GroundTruth& truth) {
                  evaluation_.add(sample, detections, truth);
                });
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
  models::Detector* const& detector_;
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
               " is no detector, which the task needs; name \"fcos\", \"retinanet\", \"ssd\" or \"yolox\"");
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
  return std::make_unique<DetectionMetrics>(detector_, options_, data_.train->class_names());
}

std::string DetectionTask::describe() const {
  const data::ImageShape shape = data_.input_shape();
  return join_text("images with boxes, ", data_.classes(), " classes, input ", shape.height, "x", shape.width, "x",
                   shape.channels);
}

Json DetectionTask::predict(const TrainedModel& trained, const std::string& path, const std::string& folder) const {
  const NoGrad no_grad;
  const data::AnnotatedImages& known = data_.train->boxes()->annotated();
  const std::filesystem::path file = path;
  data::AnnotatedImages image;
  image.source = path;
  image.folder = file.has_parent_path() ? file.parent_path().string() : ".";
  image.class_names = known.class_names;
  image.category_ids = known.category_ids;
  image.images.push_back({.file = file.filename().string()});
  const auto dataset = std::make_shared<const data::BoxDataset>(std::move(image), data::default_decode_bytes);
  data::Loader loader(dataset, data_.eval_transforms, {.batch_size = 1, .workers = 0, .dtype = DType::u8});
  const data::Batch batch = loader.next();
  const Tensor& pixels = batch["images"];
  const auto detections = [&] {
    const AutocastScope autocast(trained.autocast());
    const Tensor outputs = (*trained.model)(inputs(trained, batch.to(trained.device())));
    return detector_->detections(outputs, pixels.dim(1), pixels.dim(2), options_).front();
  }();
  const Tensor boxes = within_image(detections.boxes, batch["image_maps"].data<const double>(),
                                    batch["image_sizes"].data<const std::int64_t>());
  data::Image whole;
  dataset->read(0, whole);
  Json list = Json::array();
  const std::vector<double> corners = boxes.to_doubles(), scores = detections.scores.to_doubles(),
                            classes = detections.classes.to_doubles();
  for (std::size_t i = 0; i < scores.size(); ++i) {
    const double* const at = &corners[4 * i];
    const auto label = static_cast<std::size_t>(classes[i]);
    if (scores[i] >= shown_score) data::draw_box(whole, {at[0], at[1], at[2], at[3]}, static_cast<std::int64_t>(label));
    list.push_back(Json::object()
                       .set("class", known.class_names[label])
                       .set("category_id", known.category_ids[label])
                       .set("score", scores[i])
                       .set("bbox", Json::array_of(std::vector<double>{at[0], at[1], at[2] - at[0], at[3] - at[1]})));
  }
  std::filesystem::create_directories(folder);
  const std::string picture = std::filesystem::path(folder) / (file.stem().string() + ".boxes.png");
  data::write_png(picture, whole);
  return Json::object().set("file", path).set("picture", picture).set("boxes", std::move(list));
}

void DetectionTask::report(const TrainedModel& trained, const data::DatasetPointer& part, const VisitBatches& visit,
                           ReportSections& sections) const {
  report_detection(
      *part->boxes(),
      [&](const UseBoxes& use) {
        visit([&](const data::Batch& batch) {
          visit_boxes(*detector_, options_, (*trained.model)(inputs(trained, batch)), batch, use);
        });
      },
      sections);
}

}  // namespace hearth::train
