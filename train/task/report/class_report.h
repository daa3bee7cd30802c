// SPDX-License-Identifier: Apache-2.0
// What a report shows of a model that gives a class to each sample.
#pragma once

#include <functional>

#include "data/dataset.h"
#include "train/task/report_sections.h"
#include "train/task/task.h"

namespace hearth::train {

class ConfusionMatrix;

/// Adds the confusion matrix, precision, recall and F1 of each class, how often the model is as right as it is certain,
/// and the most confident mistakes: `figure_of` shows a sample, to whose caption label and prediction are added.
/// `visit` gives batches of the split `part`, whose class names are those of the data. The model's outputs are
/// [N, classes].
void report_classes(const Task& task, const TrainedModel& trained, const data::DatasetPointer& part,
                    const VisitBatches& visit, ReportSections& sections,
                    const std::function<Figure(std::int64_t sample)>& figure_of);

/// A table of `metrics` of each class: all of 30 or fewer, otherwise the 20 with the lowest F1 of those that occur.
void report_each_class(const ConfusionMatrix& matrix, const std::vector<std::string>& names, ReportSections& sections);

}  // namespace hearth::train
