// SPDX-License-Identifier: Apache-2.0
// Tasks by the name that a configuration gives.
#pragma once

#include <memory>
#include <string>

#include "core/config/config.h"
#include "data/splits.h"
#include "train/task/task.h"

namespace hearth::train {

using TaskRegistry = Registry<std::unique_ptr<Task>(const data::DataSplits&)>;
/// Known here: auto, classification, detection, segmentation, regression, multi_label, contrastive,
/// text_classification, language_model, translation. Making one is a ConfigError where the data is not of its kind. The
/// data outlives the task.
HEARTH_API TaskRegistry& tasks();
/// The loss of a run whose configuration names none: mse for regression, bce_with_logits for multi_label, that of the
/// model for detection, cross_entropy for all others.
HEARTH_API const char* default_loss(const std::string& task);

}  // namespace hearth::train
