// SPDX-License-Identifier: Apache-2.0
// What other libraries call layers that have other names here, or that are functions (core/other_names.h).
#pragma once

#include "core/other_names.h"

namespace hearth::nn {

HEARTH_OTHER_CLASS(ReLU, "write relu(x) in forward()")
HEARTH_OTHER_CLASS(GELU, "write gelu(x) in forward(), or {.activation = Activation::gelu} of nn::Linear")
HEARTH_OTHER_CLASS(SiLU, "write silu(x) in forward()")
HEARTH_OTHER_CLASS(Sigmoid, "write sigmoid(x) in forward()")
HEARTH_OTHER_CLASS(Tanh, "write tanh(x) in forward()")
HEARTH_OTHER_CLASS(Softmax, "write softmax(x, axis) in forward()")
HEARTH_OTHER_CLASS(Flatten, "write x.flatten(1) in forward()")
HEARTH_OTHER_CLASS(Sequential, "derive nn::Module with the layers as members, or add() them to an nn::ModuleList")
HEARTH_OTHER_CLASS(BatchNorm1d, "write nn::BatchNorm, whose channels are the last axis")
HEARTH_OTHER_CLASS(BatchNorm2d, "write nn::BatchNorm, whose channels are the last axis")
HEARTH_OTHER_CLASS(InstanceNorm2d, "write nn::GroupNorm with as many groups as channels")
HEARTH_OTHER_CLASS(RMSNorm, "write rms_norm(x, gamma) in forward(), with gamma a parameter")
HEARTH_OTHER_CLASS(MultiheadAttention, "write attention(q, k, v) in forward(), with nn::Linear for the projections")
HEARTH_OTHER_CLASS(TransformerEncoderLayer, "use models::Bert, or derive nn::Module and call attention(q, k, v)")
HEARTH_OTHER_CLASS(CrossEntropyLoss, "write cross_entropy(logits, labels)")
HEARTH_OTHER_CLASS(MSELoss, "write mse(x, target)")
HEARTH_OTHER_CLASS(BCEWithLogitsLoss, "write bce_with_logits(x, target)")

}  // namespace hearth::nn
