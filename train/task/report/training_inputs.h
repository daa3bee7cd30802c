// SPDX-License-Identifier: Apache-2.0
// What a model is shown in its training.
#pragma once

#include <cstdint>

#include "data/splits.h"
#include "train/task/report_sections.h"

namespace hearth::train {

/// Adds some images as the training gives them to the model, after all augmentation, with their labels, and how many
/// samples each class has. Nothing for other data, and where the training split is not there.
void add_training_inputs(const data::DataSplits& data, std::uint64_t seed, ReportSections& sections);

}  // namespace hearth::train
