// SPDX-License-Identifier: Apache-2.0
// Segmentation: a class for each pixel.
#pragma once

#include "train/task/inputs/pixel_inputs.h"
#include "train/task/task.h"

namespace hearth::train {

/// Of images with masks ("masks"), or of a data::SampleDataset with class_names(), whose samples have "images",
/// [H, W, C], and "labels", i64 [H, W], where data::ignored_label does not count. The model maps images [N, H, W, C] to
/// scores [N, H, W, classes]. Evaluations measure the intersection over union of each class, `iou`, and its mean over
/// the classes that occur, `mean_iou`.
class HEARTH_API SegmentationTask : public Task {
 public:
  /// ConfigError for other data.
  explicit SegmentationTask(const data::DataSplits& data);
  models::InputInfo input_info() const override { return info_; }
  void prepare(const TrainedModel& trained, const ChosenComponents& chosen) override;
  nn::Inputs inputs(const TrainedModel& trained, const data::Batch& batch) const override;
  const char* unit() const override { return "pixels"; }
  std::unique_ptr<Metrics> metrics() const override;
  std::string describe() const override;
  /// The class of each pixel of an image: writes a grey PNG of class numbers, and a copy of the image with the classes
  /// in colours, into `folder`, and tells their names and each class's share of the pixels. UsageError unless the data
  /// are images with masks; FileError and DataError as data::decode_image().
  Json predict(const TrainedModel& trained, const std::string& path, const std::string& folder) const override;
  /// The intersection over union of each class, and samples with their masks beside the truth.
  void report(const TrainedModel& trained, const data::DatasetPointer& part, const VisitBatches& visit,
              ReportSections& sections) const override;

 private:
  const data::DataSplits& data_;
  models::InputInfo info_;
  PixelInputs pixels_{};  ///< of images with masks
};

}  // namespace hearth::train
