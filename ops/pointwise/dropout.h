// SPDX-License-Identifier: Apache-2.0
// Dropout.
#pragma once

#include "core/cpu/stream.h"
#include "core/cuda/stream.h"
#include "core/random.h"
#include "core/tensor.h"

namespace hearth {

struct DropoutOptions {
  /// Whether x has rows for each sample, along its first axis. False for what all samples share, as a weight or a table
  /// of positions: under gradient accumulation every part of a batch then drops what the whole batch would.
  bool per_sample = true;
};

/// Zeroes each element with probability p and multiplies the others by 1 / (1 - p), so that the expectation stays.
/// x itself when not training or p is 0. x of any shape and floating type; 0 <= p < 1 (UsageError).
/// The choice is a pure function of next_random_key() and the element's number, within the whole batch of the step
/// where x is a part of it (a first axis that does not divide into the samples is taken as shared); nothing but the key
/// is kept. Source: Srivastava et al., "Dropout: A Simple Way to Prevent
/// Neural Networks from Overfitting" (JMLR 2014).
HEARTH_API Tensor dropout(const Tensor& x, double p, bool training, const DropoutOptions& options = {});

namespace kernels {
/// y[i] = keeps(key, i) ? x[i] / (1 - p) : 0. Contiguous, of one floating type; y may be x.
void dropout(cpu::Stream&, const Tensor& x, const RandomKey& key, double p, const Tensor& y);
void dropout(cuda::Stream&, const Tensor& x, const RandomKey& key, double p, const Tensor& y);
}  // namespace kernels
}  // namespace hearth
