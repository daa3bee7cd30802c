// SPDX-License-Identifier: Apache-2.0
// Models that tell what their last layer sees of an input.
#pragma once

#include "core/tensor.h"

namespace hearth::models {

/// What such a model derives from, beside nn::Module: its forward(x) is outputs_of(embedding(x)).
class HEARTH_API EmbeddingModel {
 public:
  /// [N, C], for what the model's forward() takes. UsageError where its head has no such input.
  virtual Tensor embedding(const Tensor& x) = 0;
  /// The model's outputs, [N, classes].
  virtual Tensor outputs_of(const Tensor& embedding) = 0;

 protected:
  ~EmbeddingModel() = default;
};

}  // namespace hearth::models
