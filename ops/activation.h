// SPDX-License-Identifier: Apache-2.0
// The activations that other ops can apply to their result before they store it.
#pragma once

#include <cstdint>

namespace hearth {

enum class Activation : std::uint8_t {
  none,
  relu,       ///< max(x, 0)
  gelu,       ///< x * Phi(x), Phi by erf
  gelu_tanh,  ///< GELU with Phi approximated by tanh
  silu,       ///< x * sigmoid(x)
};

/// "none", "relu", "gelu", "gelu_tanh" or "silu".
constexpr const char* name_of(Activation activation) {
  switch (activation) {
    case Activation::none:
      return "none";
    case Activation::relu:
      return "relu";
    case Activation::gelu:
      return "gelu";
    case Activation::gelu_tanh:
      return "gelu_tanh";
    case Activation::silu:
      return "silu";
  }
  return "none";
}

}  // namespace hearth
