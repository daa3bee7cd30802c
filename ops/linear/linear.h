// SPDX-License-Identifier: Apache-2.0
// The fully connected layer: product, bias and activation in one op.
#pragma once

#include "core/tensor.h"
#include "ops/activation.h"

namespace hearth {

/// y = activation(x w^T + b): x [..., I], w [O, I], b [O] or absent (an undefined tensor), y [..., O].
/// y has x's type, and 16-bit types are summed in f32. w has x's type, or is f32 where x is f16 or bf16 (as under
/// autocast); b has x's or w's type. I = 0 gives activation(b). ShapeError, DTypeError.
HEARTH_API Tensor linear(const Tensor& x, const Tensor& w, const Tensor& b, Activation activation = Activation::none);

}  // namespace hearth
