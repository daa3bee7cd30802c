// SPDX-License-Identifier: Apache-2.0
// Segmentation: a class for each pixel.
#pragma once

#include "train/task/task.h"

namespace hearth::train {

/// Of a data::SampleDataset with class_names(), whose samples have "images", [H, W, C], and "labels", i64 [H, W], where
/// data::ignored_label does not count. The model maps images [N, H, W, C] to scores [N, H, W, classes]. Evaluations
/// measure the intersection over union of each class, `iou`, and its mean over the classes that occur, `mean_iou`.
class HEARTH_API SegmentationTask : public Task {
 public:
  /// ConfigError for other data.
  explicit SegmentationTask(const data::DataSplits& data);
  models::InputInfo input_info() const override { return info_; }
  nn::Inputs inputs(const TrainedModel& trained, const data::Batch& batch) const override;
  const char* unit() const override { return "pixels"; }
  std::unique_ptr<Metrics> metrics() const override;
  std::string describe() const override;
  /// The intersection over union of each class, and samples with their masks beside the truth.
  void report(const TrainedModel& trained, const data::DatasetPointer& part, const VisitBatches& visit,
              ReportSections& sections) const override;

 private:
  const data::DataSplits& data_;
  models::InputInfo info_;
};

}  // namespace hearth::train
