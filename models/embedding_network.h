// SPDX-License-Identifier: Apache-2.0
// Networks that tell what their last layer sees of an input.
#pragma once

#include "core/tensor.h"

namespace hearth::models {

/// What such a network derives from, beside nn::Module: its forward(x) is outputs_of(embedding(x)).
class HEARTH_API EmbeddingNetwork {
 public:
  /// [N, C], for what the network's forward() takes. UsageError where its head has no such input.
  virtual Tensor embedding(const Tensor& x) = 0;
  /// The network's outputs, [N, classes].
  virtual Tensor outputs_of(const Tensor& embedding) = 0;

 protected:
  ~EmbeddingNetwork() = default;
};

}  // namespace hearth::models
