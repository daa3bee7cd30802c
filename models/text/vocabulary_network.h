// SPDX-License-Identifier: Apache-2.0
// Networks whose outputs are a matrix product over a vocabulary. Who needs the loss of the outputs alone can take it of
// the features (linear_cross_entropy), so that the outputs, the largest tensor of such a network, never exist:
//
//   const auto [w, b] = network.head();
//   const Tensor loss = linear_cross_entropy(network.features({ids}), w, b, labels);
#pragma once

#include "models/nn/module.h"

namespace hearth::models {

/// What such a network derives from, beside nn::Module: its outputs are linear(features, head().weight, head().bias).
class HEARTH_API VocabularyNetwork {
 public:
  struct Head {
    Tensor weight;     ///< [vocabulary, C], a parameter; undefined where the network was made without this head
    Tensor bias = {};  ///< [vocabulary], or undefined
  };
  virtual Head head() const = 0;
  /// [..., C], for the inputs that the network takes; seen by observers as a call of the network. UsageError for
  /// another number of inputs.
  virtual Tensor features(const nn::Inputs& inputs) = 0;

 protected:
  ~VocabularyNetwork() = default;
};

}  // namespace hearth::models
