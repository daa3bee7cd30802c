// SPDX-License-Identifier: Apache-2.0
// Mean squared error.
#pragma once

#include "hearth/core/cpu/stream.h"
#include "hearth/core/tensor.h"

namespace hearth {

/// The mean of (x - target)^2 over all elements, a scalar: f64 for f64 inputs, else f32.
///
/// x and target have one shape and one floating type; both get gradients. Sums in f64. Under autocast both are widened.
/// UsageError, ShapeError (also for tensors without elements) or DTypeError for arguments that do not fit.
Tensor mse(const Tensor& x, const Tensor& target);

namespace kernels {

/// The sum of (x - target)^2.
double squared_error(cpu::Stream&, const Tensor& x, const Tensor& target);
/// dx = factor (x - target).
void squared_error_grad(cpu::Stream&, const Tensor& x, const Tensor& target, double factor, const Tensor& dx);

}  // namespace kernels
}  // namespace hearth
