// SPDX-License-Identifier: Apache-2.0
// From the statistics of a channel to what normalises it. For kernel sources only.
#pragma once

#include <cmath>

#include "ops/norm/batch_norm.h"
#include "ops/row_split.cuh"

namespace hearth::kernels {

/// What the coefficients of a channel are made from and go to.
template <class P>
struct Coefficients {
  const P *gamma, *beta;
  double eps, momentum;
  P *running_mean, *running_var;  ///< null where absent
  P* table;                       ///< [4, channels]
  double* rstd;
};

template <class P>
Coefficients<P> coefficients_of(const ChannelNorm& o) {
  return {o.gamma.data<P>(),
          o.beta.data<P>(),
          o.options.eps,
          o.options.momentum,
          cuda::data_or_null<P>(o.running_mean),
          cuda::data_or_null<P>(o.running_var),
          o.coefficients.data<P>(),
          o.rstd.data<double>()};
}

template <class P>
__device__ void store_coefficients(const Coefficients<P>& to, std::int64_t channels, std::int64_t c, double mean,
                                   double variance) {
  const double rstd = 1.0 / std::sqrt(variance + to.eps);
  const double scale = static_cast<double>(to.gamma[c]) * rstd, rest = rounding_of<P>(mean);
  to.rstd[c] = rstd;
  to.table[c] = static_cast<P>(mean);
  to.table[channels + c] = static_cast<P>(scale);
  to.table[2 * channels + c] = static_cast<P>(static_cast<double>(to.beta[c]) - rest * scale);
  to.table[3 * channels + c] = static_cast<P>(rest);
}

/// The same for the statistics of a batch of `values` a channel, which also move the running ones.
template <class P>
__device__ void store_statistics(const Coefficients<P>& to, std::int64_t channels, std::int64_t c, double mean,
                                 double variance, double values) {
  store_coefficients(to, channels, c, mean, variance);
  if (to.running_mean == nullptr) return;
  const auto blend = [&](P* running, double batch) {
    running[c] = static_cast<P>((1.0 - to.momentum) * static_cast<double>(running[c]) + to.momentum * batch);
  };
  blend(to.running_mean, mean);
  blend(to.running_var, variance * (values / (values - 1.0)));
}

}  // namespace hearth::kernels
