// SPDX-License-Identifier: Apache-2.0
// Detection: boxes on images, each of a class.
#pragma once

#include "models/detection/detector.h"
#include "train/predict/answer.h"
#include "train/task/inputs/pixel_inputs.h"
#include "train/task/task.h"

namespace hearth::train {

/// Of images with boxes ("coco", "yolo", "voc") and a models::Detector, whose loss is the run's. Evaluations measure
/// COCO's average precision, `ap`, and its other figures, in pixels of the images as their labels mean them.
class HEARTH_API DetectionTask : public Task {
 public:
  /// ConfigError for other data.
  explicit DetectionTask(const data::DataSplits& data, const models::DetectionOptions& options = {});
  models::InputInfo input_info() const override;
  /// ConfigError for a model that is no detector.
  void prepare(const TrainedModel& trained, const ChosenComponents& chosen) override;
  nn::Inputs inputs(const TrainedModel& trained, const data::Batch& batch) const override {
    return pixels_.of(trained, batch);
  }
  Tensor loss(const TrainedModel& trained, const data::Batch& batch, const Measured& measured) const override;
  const char* unit() const override { return "images"; }
  bool best_by_loss() const override { return true; }
  bool has_accuracy() const override { return false; }
  void check(const Loss& loss) const override;
  std::unique_ptr<Metrics> metrics() const override;
  std::string describe() const override;
  const PredictForm& form() const override { return boxes_form(); }
  /// The boxes that are found on an image: class, category id, score, and x, y, width and height in its pixels, as
  /// COCO's result files have them. Draws them on a copy of the image in `folder`.
  Json predict(const TrainedModel& trained, const std::string& path, const std::string& folder) const override;
  /// As report_detection() shows it.
  void report(const TrainedModel& trained, const data::DatasetPointer& part, const VisitBatches& visit,
              ReportSections& sections) const override;

 private:
  const data::DataSplits& data_;
  models::DetectionOptions options_;
  models::Detector* detector_ = nullptr;
  PixelInputs pixels_{};
};

}  // namespace hearth::train
