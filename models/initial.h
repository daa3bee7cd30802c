// SPDX-License-Identifier: Apache-2.0
// What the layers of GPT, BERT and Swin start from. The authors of Swin, timm and torchvision cut this normal at the
// values -2 and 2, a hundred deviations away: nothing is cut.
#pragma once

#include "models/nn/init.h"
#include "models/nn/linear.h"

namespace hearth::models {

inline constexpr double initial_deviation = 0.02;

/// Weights normal, biases zero.
inline nn::LinearOptions initial_linear(Activation activation = Activation::none) {
  return {.activation = activation, .weight_init = nn::init::normal(initial_deviation), .bias_init = nn::init::zeros()};
}

}  // namespace hearth::models
