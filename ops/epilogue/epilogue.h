// SPDX-License-Identifier: Apache-2.0
// What linear and conv2d do to the product once it is there: bias and activation, and their gradients.
// All tensors are contiguous [..., C] with C the last axis.
#pragma once

#include "core/cpu/stream.h"
#include "core/cuda/stream.h"
#include "core/tensor.h"
#include "ops/activation.h"

namespace hearth::kernels {

/// Every row of y becomes the bias [C].
void fill_rows(cpu::Stream&, const Tensor& bias, const Tensor& y);
void fill_rows(cuda::Stream&, const Tensor& bias, const Tensor& y);
/// y += bias [C], in every row.
void add_bias(cpu::Stream&, const Tensor& bias, const Tensor& y);
void add_bias(cuda::Stream&, const Tensor& bias, const Tensor& y);

/// y = activation(pre); y may be pre.
void activate(cpu::Stream&, Activation activation, const Tensor& pre, const Tensor& y);
void activate(cuda::Stream&, Activation activation, const Tensor& pre, const Tensor& y);

/// dpre = dy * slope; dpre may be dy. `reference` is the result y for relu, what went into the activation otherwise.
/// db [C], unless undefined, becomes the sum of dpre over the rows: f32 sums (f64 for f64) of fixed blocks of rows,
/// added in order.
void activate_grad(cpu::Stream&, Activation activation, const Tensor& reference, const Tensor& dy, const Tensor& dpre,
                   const Tensor& db);
void activate_grad(cuda::Stream&, Activation activation, const Tensor& reference, const Tensor& dy, const Tensor& dpre,
                   const Tensor& db);

/// db [C] = sum of dy over the rows, as above.
void sum_rows(cpu::Stream&, const Tensor& dy, const Tensor& db);
void sum_rows(cuda::Stream&, const Tensor& dy, const Tensor& db);

}  // namespace hearth::kernels
