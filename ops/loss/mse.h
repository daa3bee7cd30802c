// SPDX-License-Identifier: Apache-2.0
// Mean squared error.
#pragma once

#include "core/cpu/stream.h"
#include "core/cuda/stream.h"
#include "core/tensor.h"

namespace hearth {

/// The mean of (x - target)^2 over all elements, a scalar: f64 for f64 inputs, else f32.
///
/// x and target have one shape and one floating type; both get gradients. Sums in f64. Under autocast both are widened.
/// UsageError, ShapeError (also for tensors without elements) or DTypeError for arguments that do not fit.
HEARTH_API Tensor mse(const Tensor& x, const Tensor& target);

namespace kernels {

/// y, one element of the result's type: the mean of (x - target)^2.
void squared_error(cpu::Stream&, const Tensor& x, const Tensor& target, const Tensor& y);
void squared_error(cuda::Stream&, const Tensor& x, const Tensor& target, const Tensor& y);
/// dx = factor dy (x - target); dy is one element of the result's type.
void squared_error_grad(cpu::Stream&, const Tensor& x, const Tensor& target, const Tensor& dy, double factor,
                        const Tensor& dx);
void squared_error_grad(cuda::Stream&, const Tensor& x, const Tensor& target, const Tensor& dy, double factor,
                        const Tensor& dx);

}  // namespace kernels
}  // namespace hearth
