// SPDX-License-Identifier: Apache-2.0
// Softmax and its logarithm.
#pragma once

#include "core/cpu/stream.h"
#include "core/cuda/stream.h"
#include "core/tensor.h"

namespace hearth {

/// Softmax along the last axis: y = exp(x - max x) / sum exp(x - max x).
///
/// x [..., C], any floating type; y has its shape and type. Sums in f32 or wider; under autocast x is upcast to f32.
/// A row of which every element is -infinity, or one is +infinity, gives NaN.
/// ShapeError for a scalar, DTypeError for integers, UsageError when x is absent.
HEARTH_API Tensor softmax(const Tensor& x);

/// log(softmax(x)) along the last axis, without the loss of precision: y = (x - max x) - log sum exp(x - max x).
/// Types, upcasting and errors as for softmax.
HEARTH_API Tensor log_softmax(const Tensor& x);

/// Both along any axis, negative ones counted from the end. ShapeError for one that x does not have.
HEARTH_API Tensor softmax(const Tensor& x, int axis);
HEARTH_API Tensor log_softmax(const Tensor& x, int axis);

namespace kernels {

/// Of the softmax, or of its logarithm.
void softmax(cpu::Stream&, bool logarithm, const Tensor& x, const Tensor& y);
void softmax(cuda::Stream&, bool logarithm, const Tensor& x, const Tensor& y);
/// dx = y (dy - sum(y dy)), or of the logarithm dy - exp(y) sum(dy). dx may be dy.
void softmax_grad(cpu::Stream&, bool logarithm, const Tensor& y, const Tensor& dy, const Tensor& dx);
void softmax_grad(cuda::Stream&, bool logarithm, const Tensor& y, const Tensor& dy, const Tensor& dx);

}  // namespace kernels
}  // namespace hearth
