// SPDX-License-Identifier: Apache-2.0
// Classification: a class for each image, or for each sample of a dataset of one's own.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "data/formats/image_folder.h"
#include "train/task/inputs/pixel_inputs.h"
#include "train/task/inputs/sample_inputs.h"
#include "train/task/task.h"

namespace hearth::train {

/// What evaluations measure of classes, beside loss and accuracy.
struct ClassMetricOptions {
  std::optional<std::int64_t> top_k{};
  bool by_class = false;
};
HEARTH_API void describe(Fields<ClassMetricOptions>& fields);

/// `top_k_accuracy`; `precision`, `recall` and `f1`, means over the classes that occur, and `f1_by_class`. Null where
/// the options ask for nothing. ConfigError unless top_k is at most the number of classes. `names` outlive it.
HEARTH_API std::unique_ptr<Metrics> class_metrics(const ClassMetricOptions& options,
                                                  const std::vector<std::string>& names);

/// DataError for data of one class.
HEARTH_API void require_several_classes(const data::DataSplits& data);

class HEARTH_API ClassificationTask : public Task {
 public:
  explicit ClassificationTask(const data::DataSplits& data, const ClassMetricOptions& options = {});
  models::InputInfo input_info() const override;
  void prepare(const TrainedModel& trained, const ChosenComponents& chosen) override;
  /// Pixels are normalised where they lie; other images are as they are.
  nn::Inputs inputs(const TrainedModel& trained, const data::Batch& batch) const override;
  const char* unit() const override { return samples_ ? "samples" : "images"; }
  std::unique_ptr<Metrics> metrics() const override { return class_metrics(options_, data_.train->class_names()); }
  InputPieces outside_inputs(const TrainedModel& trained, const OutsideSamples& samples) const override;
  const PredictForm& form() const override;
  std::string describe() const override;
  std::int64_t rows_to_measure() const override;
  void report(const TrainedModel& trained, const data::DatasetPointer& part, const VisitBatches& visit,
              ReportSections& sections) const override;

 private:
  const data::DataSplits& data_;
  ClassMetricOptions options_;
  std::optional<SampleInputs> samples_;  // of a dataset of one's own
  data::ImageFolderOptions files_{};     // how image files are read: as the run read its own
  PixelInputs pixels_{};
};

}  // namespace hearth::train
