// SPDX-License-Identifier: Apache-2.0
// Sums of losses over batches, kept where the run computes, so that a training step need not wait for its device.
#pragma once

#include "hearth/core/cpu/stream.h"
#include "hearth/core/cuda/stream.h"
#include "hearth/core/tensor.h"

namespace hearth {

/// sum += weight * loss. `sum` f64 [1], `loss` one floating element on its device. Both roundings are those of f64, on
/// every device. Not differentiable.
void add_loss(const Tensor& sum, const Tensor& loss, double weight);

namespace kernels {

void add_loss(cpu::Stream&, const Tensor& sum, const Tensor& loss, double weight);
void add_loss(cuda::Stream&, const Tensor& sum, const Tensor& loss, double weight);

}  // namespace kernels
}  // namespace hearth
