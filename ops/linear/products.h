// SPDX-License-Identifier: Apache-2.0
// The products that linear and mlp are made of.
#pragma once

#include "autograd/node.h"
#include "core/tensor.h"
#include "ops/activation.h"

namespace hearth::detail {

struct Projected {
  Tensor y;
  Tensor reference;  ///< what the activation's slope needs; undefined without one or where no gradient is recorded
};

/// activation(x w^T + b), x and w contiguous. The errors of linear().
Projected project(const Tensor& x, const Tensor& w, const Tensor& b, Activation activation);

/// The gradient of w, of type `own`, which is input `input` of the node: dy^T x, added where the tape has the sum so
/// far and may take it. `db`, unless undefined, becomes the sum of dy's rows. dy is contiguous.
Tensor weight_gradient(const NeedsGrad& needs, std::size_t input, DType own, const Tensor& dy, const Tensor& x,
                       const Tensor& db);

/// The gradient of x, the node's first input: dy w. dy is contiguous.
Tensor input_gradient(const NeedsGrad& needs, const Tensor& dy, const Tensor& w);

}  // namespace hearth::detail
