// SPDX-License-Identifier: Apache-2.0
// Losses of several batches together: their sum, and what each of them counts for in a mean over all. Worked out where
// the run computes, so that a training step need not wait for its device.
#pragma once

#include <cstdint>
#include <span>

#include "core/cpu/stream.h"
#include "core/cuda/stream.h"
#include "core/tensor.h"

namespace hearth {

/// sum += weight * loss. `sum` f64 [1], `loss` one floating element on its device. Both roundings are those of f64, on
/// every device. With `row_weight`, f64 [1] there, the weight is weight * share. Not differentiable.
HEARTH_API void add_loss(const Tensor& sum, const Tensor& loss, double weight, const Tensor& row_weight = {});

/// How many labels of each part of a batch count: those other than `ignored`. parts: i64 labels, or floating targets
/// [..., classes], all rows of which count. The result is f64 [parts], beside them. UsageError without parts,
/// DTypeError for other types, ShapeError for a floating scalar, DeviceError for parts on several devices.
HEARTH_API Tensor label_counts(std::span<const Tensor> parts, std::int64_t ignored);
/// The share of each part in all labels that count, from their counts: losses that are means over the labels that
/// count, summed with these shares, make the mean over the whole batch. f64 [parts]; 0 if no label counts.
HEARTH_API Tensor label_weights(const Tensor& counts);

namespace kernels {

void add_loss(cpu::Stream&, const Tensor& sum, const Tensor& loss, double weight, const Tensor& row_weight);
void add_loss(cuda::Stream&, const Tensor& sum, const Tensor& loss, double weight, const Tensor& row_weight);
/// *count = the labels, i64 and contiguous, other than `ignored`.
void count_labels(cpu::Stream&, const Tensor& labels, std::int64_t ignored, double* count);
void count_labels(cuda::Stream&, const Tensor& labels, std::int64_t ignored, double* count);
/// shares[i] = counts[i] / the sum of all, f64 [n]; 0 where that is 0.
void divide_by_sum(cpu::Stream&, const Tensor& counts, const Tensor& weights);
void divide_by_sum(cuda::Stream&, const Tensor& counts, const Tensor& weights);

}  // namespace kernels
}  // namespace hearth
