// SPDX-License-Identifier: Apache-2.0
// Losses of several batches together: their sum, and what each of them counts for in a mean over all. Worked out where
// the run computes, so that a training step need not wait for its device.
#pragma once

#include <cstdint>
#include <span>

#include "hearth/core/cpu/stream.h"
#include "hearth/core/cuda/stream.h"
#include "hearth/core/tensor.h"

namespace hearth {

/// sum += weight * loss. `sum` f64 [1], `loss` one floating element on its device. Both roundings are those of f64, on
/// every device. With `share`, f64 [1] there, the weight is weight * share. Not differentiable.
void add_loss(const Tensor& sum, const Tensor& loss, double weight, const Tensor& share = {});

/// The share of each part of a batch in the labels that count: those other than `ignored`. Losses that are means over
/// the labels that count, summed with these shares, make the mean over the whole batch. parts: i64 labels, or floating
/// targets [rows, classes], all rows of which count. The result is f64 [parts], beside them; 0 if no label counts.
/// UsageError without parts, DTypeError for other types, DeviceError for parts on several devices.
Tensor label_shares(std::span<const Tensor> parts, std::int64_t ignored);

namespace kernels {

void add_loss(cpu::Stream&, const Tensor& sum, const Tensor& loss, double weight, const Tensor& share);
void add_loss(cuda::Stream&, const Tensor& sum, const Tensor& loss, double weight, const Tensor& share);
/// *count = the labels, i64 and contiguous, other than `ignored`.
void count_labels(cpu::Stream&, const Tensor& labels, std::int64_t ignored, double* count);
void count_labels(cuda::Stream&, const Tensor& labels, std::int64_t ignored, double* count);
/// Counts, f64 [n], become shares in their sum; zeros stay.
void divide_by_sum(cpu::Stream&, const Tensor& counts);
void divide_by_sum(cuda::Stream&, const Tensor& counts);

}  // namespace kernels
}  // namespace hearth
