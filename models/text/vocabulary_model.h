// SPDX-License-Identifier: Apache-2.0
// Models whose outputs are a matrix product over a vocabulary. Who needs the loss of the outputs alone can take it of
// the features (linear_cross_entropy), so that the outputs, the largest tensor of such a model, never exist:
//
//   const auto [w, b] = model.head();
//   const Tensor loss = linear_cross_entropy(model.features({ids}), w, b, labels);
#pragma once

#include "models/nn/module.h"

namespace hearth::models {

/// What such a model derives from, beside nn::Module: its outputs are linear(features, head().weight, head().bias).
class HEARTH_API VocabularyModel {
 public:
  struct Head {
    Tensor weight;     ///< [vocabulary, C], a parameter; undefined where the model was made without this head
    Tensor bias = {};  ///< [vocabulary], or undefined
  };
  virtual Head head() const = 0;
  /// [..., C], for the inputs that the model takes; seen by observers as a call of the model. UsageError for
  /// another number of inputs.
  virtual Tensor features(const nn::Inputs& inputs) = 0;

 protected:
  ~VocabularyModel() = default;
};

}  // namespace hearth::models
