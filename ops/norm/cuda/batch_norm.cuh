// SPDX-License-Identifier: Apache-2.0
// From the statistics of a channel to what normalises it. For kernel sources only.
#pragma once

#include <cmath>

#include "ops/device/row_split.cuh"
#include "ops/norm/batch_norm.h"

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

/// What a channel's coefficients take from memory: read early and at once, so that nothing waits for one after the
/// other.
template <class P>
struct ChannelTerms {
  double gamma = 0, beta = 0, running_mean = 0, running_var = 0;

  ChannelTerms() = default;
  __device__ ChannelTerms(const Coefficients<P>& of, std::int64_t c)
      : gamma(static_cast<double>(of.gamma[c])), beta(static_cast<double>(of.beta[c])) {
    if (of.running_mean == nullptr) return;
    running_mean = static_cast<double>(of.running_mean[c]);
    running_var = static_cast<double>(of.running_var[c]);
  }
};

template <class P>
__device__ void store_coefficients(const Coefficients<P>& to, const ChannelTerms<P>& terms, std::int64_t channels,
                                   std::int64_t c, double mean, double variance) {
  const double rstd = 1.0 / std::sqrt(variance + to.eps), scale = terms.gamma * rstd, rest = rounding_of<P>(mean);
  to.rstd[c] = rstd;
  to.table[c] = static_cast<P>(mean);
  to.table[channels + c] = static_cast<P>(scale);
  to.table[2 * channels + c] = static_cast<P>(terms.beta - rest * scale);
  to.table[3 * channels + c] = static_cast<P>(rest);
}

/// The same for the statistics of a batch of `values` a channel, which also move the running ones.
template <class P>
__device__ void store_statistics(const Coefficients<P>& to, const ChannelTerms<P>& terms, std::int64_t channels,
                                 std::int64_t c, double mean, double variance, double values) {
  store_coefficients(to, terms, channels, c, mean, variance);
  if (to.running_mean == nullptr) return;
  const auto blend = [&](double running, double batch) {
    return static_cast<P>((1.0 - to.momentum) * running + to.momentum * batch);
  };
  to.running_mean[c] = blend(terms.running_mean, mean);
  to.running_var[c] = blend(terms.running_var, variance * (values / (values - 1.0)));
}

}  // namespace hearth::kernels
