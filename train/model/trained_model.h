// SPDX-License-Identifier: Apache-2.0
// A model and how a run computes with it: what a task knows of a run.
#pragma once

#include <memory>
#include <optional>

#include "core/device.h"
#include "core/dtype.h"
#include "models/nn/module.h"
#include "models/text/vocabulary_model.h"
#include "train/model/loss.h"

namespace hearth::train {

class HEARTH_API TrainedModel {
 public:
  /// Where the run computes.
  Device device() const { return device_; }
  /// The low-precision type of the run's precision; nothing for O0.
  std::optional<DType> autocast() const { return autocast_; }

  std::unique_ptr<nn::Module> model;
  models::VocabularyModel* chunked = nullptr;  ///< the model where the loss is computed from its features, else null
  Loss loss;

 protected:
  Device device_;
  std::optional<DType> autocast_;
};

}  // namespace hearth::train
