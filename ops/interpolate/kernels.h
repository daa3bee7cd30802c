// SPDX-License-Identifier: Apache-2.0
// Arithmetic of interpolate. All tensors are contiguous NHWC and have elements.
#pragma once

#include "core/cpu/stream.h"
#include "core/cuda/stream.h"
#include "core/tensor.h"
#include "ops/interpolate/taps.h"

namespace hearth::kernels {

/// From images [N, rows.in, columns.in, C] to [N, rows.out, columns.out, C].
struct Resampling {
  ResampledAxis rows, columns;
};

void interpolate(cpu::Stream&, const Resampling& r, const Tensor& x, const Tensor& y);
void interpolate(cuda::Stream&, const Resampling& r, const Tensor& x, const Tensor& y);
void interpolate_grad(cpu::Stream&, const Resampling& r, const Tensor& dy, const Tensor& dx);
void interpolate_grad(cuda::Stream&, const Resampling& r, const Tensor& dy, const Tensor& dx);

}  // namespace hearth::kernels
