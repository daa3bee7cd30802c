// SPDX-License-Identifier: Apache-2.0
// The input of a model for batches of images: pixels are normalised where they lie.
#pragma once

#include "data/splits.h"
#include "models/nn/module.h"
#include "train/model/trained_model.h"

namespace hearth::train {

class HEARTH_API PixelInputs {
 public:
  /// Of the images of these data; called once the model lies on the run's device.
  void prepare(const TrainedModel& trained, const data::DataSplits& data);
  /// The "images" of a batch that lies where the model does, normalised if they are u8, else as they are.
  nn::Inputs of(const TrainedModel& trained, const data::Batch& batch) const;

 private:
  Tensor pixel_values_;       // f32 [C, 256]: what a pixel value of a channel is for the model
  bool pads_pixels_ = false;  // as its first layer, a convolution, has them padded
};

}  // namespace hearth::train
