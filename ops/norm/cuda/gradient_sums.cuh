// SPDX-License-Identifier: Apache-2.0
// From the finished sums of a norm's gradient to what they are wanted for. For kernel sources only.
#pragma once

#include "core/tensor.h"
#include "ops/device/row_split.cuh"

namespace hearth::kernels {

/// A norm whose gradient is needed: its input, and what batch_norm_grad_sums() makes of the sums by channel.
struct BatchNormGradient {
  const Tensor &x, &coefficients, &rstd, &d_gamma, &d_beta, &corrections;
};

/// What the sums are made from and go to; null outputs are not wanted.
template <class P>
struct GradientSums {
  const P* table;  ///< [4, channels] of a ChannelNorm
  const double* rstd;
  P *d_gamma, *d_beta, *corrections;
  std::int64_t channels;
  double values;  ///< of a channel

  /// Of a channel: the sums of g and of g (x - mean), the mean as rounded.
  __device__ void store(std::int64_t c, double sum, double product) const {
    const double rest = table[3 * channels + c];
    product -= rest * sum;
    if (d_gamma != nullptr) d_gamma[c] = static_cast<P>(product * rstd[c]);
    if (d_beta != nullptr) d_beta[c] = static_cast<P>(sum);
    if (corrections == nullptr) return;
    const double slope = product * rstd[c] * rstd[c] / values;
    corrections[c] = static_cast<P>(sum / values - slope * rest);
    corrections[channels + c] = static_cast<P>(slope);
  }
};

template <class P>
GradientSums<P> gradient_sums(const BatchNormGradient& o, std::int64_t values) {
  return {o.coefficients.data<P>(),
          o.rstd.data<double>(),
          cuda::data_or_null<P>(o.d_gamma),
          cuda::data_or_null<P>(o.d_beta),
          cuda::data_or_null<P>(o.corrections),
          o.coefficients.dim(1),
          static_cast<double>(values)};
}

/// Of the tables that GradientSums are made from and go to.
inline std::int64_t bytes_of_gradient(const BatchNormGradient& o) {
  return cuda::bytes_of(o.coefficients, o.rstd, o.d_gamma, o.d_beta, o.corrections);
}

}  // namespace hearth::kernels
