// SPDX-License-Identifier: Apache-2.0
// Two fully connected layers with an activation between them: the feed-forward part of a Transformer.
#pragma once

#include "core/tensor.h"
#include "ops/activation.h"

namespace hearth {

/// y = linear(linear(x, w1, b1, activation), w2, b2): x [..., I], w1 [H, I], b1 [H], w2 [O, H], b2 [O], y [..., O]; the
/// biases may be absent. Types and errors as in linear(). On the CPU those two ops, to the bit. On a CUDA device one,
/// whose gradient multiplies by the activation's slope within the product that makes it, where a library can
/// (gelu_tanh): the gradient between the layers is not stored first.
HEARTH_API Tensor mlp(const Tensor& x, const Tensor& w1, const Tensor& b1, const Tensor& w2, const Tensor& b2,
                      Activation activation);

}  // namespace hearth
